# `tbmem estimate` and TensorBoard with the Memory tab, on the CPU build of torch; it needs no network when it runs.
#
#   docker build -t tbmem .
#   docker run --rm --network none tbmem estimate --model llama-7b --gpu a100-40gb
#   docker run --rm -p 6006:6006 -v "$PWD/runs:/work/runs:ro" --entrypoint tensorboard tbmem --logdir runs --bind_all
FROM python:3.11-slim AS build
WORKDIR /source
COPY . .
RUN pip install --no-cache-dir "pip>=25.1" \
    && pip install --no-cache-dir --group release \
    && python -m build --wheel --outdir /dist

FROM python:3.11-slim
# --build-arg PIP_OPTIONS="--extra-index-url ADDRESS" of PyTorch's CPU builds, which are preferred as they have a local version:
# without it the build for CUDA is installed, which is several GB larger
ARG PIP_OPTIONS=
COPY constraints.txt /tmp/
COPY --from=build /dist/ /tmp/dist/
RUN pip install --no-cache-dir -c /tmp/constraints.txt $PIP_OPTIONS "$(ls /tmp/dist/*.whl)[plots]" \
    && rm -r /tmp/dist /tmp/constraints.txt \
    && useradd --create-home user \
    && install --directory --owner user /work
USER user
WORKDIR /work
EXPOSE 6006
ENTRYPOINT ["tbmem"]
CMD ["--help"]
