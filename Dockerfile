# Two stages: the first builds the binary as `make serve` does, the second holds the binary, the
# shared libraries it names, and models/braid-tiny. Other models are mounted: see deploy/README.md.
FROM debian:bookworm AS build
WORKDIR /braid
ENV CARGO_HOME=/opt/cargo
ENV RUSTUP_HOME=/opt/rustup
ENV PATH=/opt/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY scripts scripts
RUN scripts/setup.sh build
COPY . .
RUN cmake --preset release -DBRAID_TESTS=OFF && cmake --build --preset release --target braid
RUN strip build/release/braid && deploy/runtime_packages.sh build/release/braid > build/packages

FROM debian:bookworm-slim
COPY --from=build /braid/build/packages /usr/share/braid/packages
RUN apt-get update && xargs -a /usr/share/braid/packages \
    apt-get install -y --no-install-recommends && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin braid
COPY --from=build /braid/build/release/braid /usr/local/bin/braid
COPY --from=build /braid/deploy/is_ready.sh /usr/local/bin/braid-is-ready
COPY --from=build /braid/models/braid-tiny /models/braid-tiny
USER braid
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s CMD ["braid-is-ready", "8000"]
ENTRYPOINT ["braid"]
CMD ["serve", "/models/braid-tiny", "--host", "0.0.0.0", "--port", "8000"]
