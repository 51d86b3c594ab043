# Two stages: the first builds the binary of `make dist`, which needs nothing but the C library; the
# second holds it, the libraries that it loads when they are asked for (libucx0 for --role, libzmq5
# for --kv-events) and models/braid-tiny. Other models are mounted: see deploy/README.md.
FROM debian:bookworm AS build
ARG COMMIT=
WORKDIR /braid
ENV CARGO_HOME=/opt/cargo
ENV RUSTUP_HOME=/opt/rustup
ENV PATH=/opt/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY scripts scripts
RUN scripts/setup.sh build
COPY . .
RUN cmake --preset release -DBRAID_TESTS=OFF -DBRAID_COMMIT="$COMMIT" && \
    cmake --build --preset release --target dist

FROM debian:bookworm-slim
RUN apt-get update && apt-get install --yes --no-install-recommends libucx0 libzmq5 && \
    rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin braid
COPY --from=build /braid/build/dist/braid /usr/local/bin/braid
COPY --from=build /braid/build/dist/NOTICES /usr/share/doc/braid/NOTICES
COPY --from=build /braid/deploy/is_ready.sh /usr/local/bin/braid-is-ready
COPY --from=build /braid/models/braid-tiny /models/braid-tiny
USER braid
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s CMD ["braid-is-ready", "8000"]
ENTRYPOINT ["braid"]
CMD ["serve", "/models/braid-tiny", "--host", "0.0.0.0", "--port", "8000"]
