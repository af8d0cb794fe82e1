# Heddle with all that training needs. Without arguments for CPUs; for NVIDIA GPUs:
#
#   docker build --build-arg ACCELERATOR=cuda -t heddle .
#   docker run --gpus all --shm-size 16g -v "$PWD:/work" heddle train job.toml
#
# PyTorch's wheels bring CUDA with them, so the host needs only its driver.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

# cpu or cuda
ARG ACCELERATOR=cpu
# Which build of PyTorch; constraints.txt has the version that this release is tested with.
ARG TORCH=
# Where wheels of PyTorch are looked for; needed where the default index has builds for the other accelerator only.
ARG TORCH_INDEX=
ARG EXTRAS=train,plan,png,cloud

RUN useradd --create-home heddle && mkdir /work && chown heddle /work
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY heddle heddle
RUN case "$ACCELERATOR" in cpu|cuda) ;; *) echo "ACCELERATOR is cpu or cuda, not $ACCELERATOR" >&2; exit 1 ;; esac \
    && torch="${TORCH:-$(grep '^torch==' constraints.txt)}" \
    && pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$torch" \
    && pip install --no-cache-dir --constraint constraints.txt ".[$EXTRAS]" \
    && python -c "import sys, torch; sys.exit(0 if '$ACCELERATOR' == 'cpu' or torch.version.cuda else 'This PyTorch has no CUDA: set TORCH_INDEX.')"

USER heddle
WORKDIR /work
ENTRYPOINT ["heddle"]
CMD ["--help"]
