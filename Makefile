# Two commands do everything on a fresh Debian or Ubuntu machine that has make, cc and rustup:
# `make demo` shows the main job, `make test` installs what the tests need and runs them all.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
export PATH := $(PATH):$(HOME)/.cargo/bin
XTASK = $(CARGO) xtask

.PHONY: help build demo test tidy loom bench deps install need-cargo
.NOTPARALLEL:

help:
	@echo 'make demo                  builds, and shows programs native and under raddle'
	@echo 'make test                  installs what the tests need, runs every lane'
	@echo 'make build                 builds the release: target/release/raddle'
	@echo 'make install PREFIX=DIR    installs into DIR (default /usr/local; DESTDIR is honoured)'
	@echo 'make tidy loom bench deps  one part of the above each; see cargo xtask --help'

build demo test tidy loom bench deps: need-cargo
	@$(XTASK) $@

install: need-cargo
	@$(XTASK) install --prefix '$(PREFIX)' --destdir '$(DESTDIR)'

need-cargo:
	@command -v $(CARGO) >/dev/null || { \
	  echo 'raddle: cargo is not in PATH: install a Rust toolchain from https://rustup.rs' >&2; \
	  exit 2; }
	@command -v cc >/dev/null || { \
	  echo 'raddle: cc is not in PATH: apt-get install build-essential' >&2; exit 2; }
