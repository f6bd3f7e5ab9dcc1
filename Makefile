# What a fresh machine needs is Python 3.11 or newer, pip and make; the rest is installed here, into .venv and .cache.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: demo test fleet again check docs conformance bench fuzz legs crashes release-check soak clean

demo: $(VENV)/.library
	$(RUN) examples/demo.py

# What takes many processes, a proxy, a browser or other people's libraries has a target of its own, and so has the inbox.
FLEET := tests/fleet tests/deploy tests/inbox tests/interop tests/docs/test_comparison.py tests/docs/test_moving_samples.py

test: check
	$(RUN) -m pytest -n 2 --dist loadfile $(FLEET:%=--ignore=%)

fleet: $(VENV)/.tools
	$(RUN) -m pytest -n 2 --dist loadfile $(FLEET)

# What failed in the last run, once more and alone. Where nothing did, because it did not come that far, this fails too.
again: $(VENV)/.tools
	$(RUN) -m pytest --last-failed --last-failed-no-failures none

check: $(VENV)/.tools
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# The site, in .cache/site/html. Warnings are errors, and so are links that lead nowhere.
docs: $(VENV)/.docs
	rm -rf .cache/site
	$(RUN) -m sphinx --builder html --doctree-dir .cache/site/doctrees --jobs auto --quiet --nitpicky --fail-on-warning --keep-going docs .cache/site/html
	$(RUN) scripts/check_site.py .cache/site/html

conformance: $(VENV)/.tools
	$(RUN) scripts/conformance.py

bench: $(VENV)/.tools
	$(RUN) -m pip install --quiet --requirement bench/requirements.txt
	$(RUN) -m bench.run --check

fuzz: $(VENV)/.tools
	TURNWISE_FUZZ=1 $(RUN) -m pytest --timeout 0 tests/properties

legs: $(VENV)/.tools
	TURNWISE_LEGS=1 $(RUN) -m pytest --timeout 0 tests/fleet/test_fresh_processes.py tests/fleet/test_relayed_flows.py

crashes: $(VENV)/.tools
	TURNWISE_CRASHES=1 $(RUN) -m pytest --timeout 0 tests/fleet/test_tasks.py

release-check:
	$(PYTHON) scripts/release_check.py --measure

# Needs nginx, and takes about ten minutes: a fleet in a storm, then figures, a table and plots in docs/.
soak: $(VENV)/.tools
	$(RUN) -m tests.fleet.soak.run
	$(RUN) -m tests.fleet.soak.report

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.library: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet --editable '.[cli]'
	touch $@

$(VENV)/.tools: $(VENV)/.library
	$(RUN) -m pip install --quiet --editable '.[cli,jwt]' --group test
	touch $@

$(VENV)/.docs: $(VENV)/.tools
	$(RUN) -m pip install --quiet --group docs
	touch $@
