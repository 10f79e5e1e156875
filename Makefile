# Ponos: tools that run and track commands on Slurm and rented GPUs. "make help" lists the targets.

PREFIX  ?= /usr/local
BINDIR  ?= $(PREFIX)/bin
MANDIR  ?= $(PREFIX)/share/man
DOCDIR  ?= $(PREFIX)/share/doc/ponos
DESTDIR ?=
GO      ?= go
# An archive of the source has no tags: its version is the newest release of the changelog.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || sed -n 's/^\#\# \[\([0-9][^]]*\)\].*/v\1/p' CHANGELOG.md | head -n 1)
# Programs that only the development of this project needs, each at its version.
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
DEADCODE := golang.org/x/tools/cmd/deadcode@v0.52.0
GOVULN   := golang.org/x/vuln/cmd/govulncheck@v1.8.0
NFPM     := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0
TOOLDIR  := $(CURDIR)/bin/dev
FUZZTIME ?= 10s
FUZZSEED ?=
CC       ?= cc
LIBDIR   ?= $(PREFIX)/lib

TOOLS := $(notdir $(wildcard cmd/*))
# All tools are links to one program. Those that are copied to nodes are their own: jobpool, and what runs in each job.
PROGRAMS := ponos jobpool ponos-worker
# Machines of nodes that are of another kind than the agent's, as MACHINE=GOARCH: see ponos-install(7).
MACHINES ?= $(filter-out $(shell uname -m)=%,x86_64=amd64 aarch64=arm64)
# Without what makes man pages in the library of the command line.
TAGS := -tags urfave_cli_no_docs
EXAMPLES := $(wildcard examples/*.md examples/*/*)
PAGES := $(patsubst %.md,%,$(wildcard man/*.md))
LDFLAGS := -s -w -X github.com/ponos-tools/ponos/lib/base/app.Version=$(VERSION)

# All end-to-end tests but "make chaos", which takes minutes of a machine of its own.
# The longest first, and those that mostly wait for Slurm, so that the others run beside them.
TESTSCRIPTS = $(addprefix ./testscripts/,jobpool agent ponos-task fairshare/cluster vast packages lfind) $$($(GO) list ./testscripts/... | grep -v /chaos)
# What depends most on the version of Slurm: these tests of these packages.
SLURMTESTS := 'Slurm|Srun|AreTrue|Accepted|Land'
SLURMSUITES := agent jobpool ponos-task fairshare/cluster lfind bench sbatch

.DEFAULT_GOAL := build
.PHONY: help build test test-unit test-slurm test-user test-bare test-dates test-calendar test-debian lint fmt cover bench forecast chaos hostile fuzz entry man html completions pictures spank install install-spank uninstall dist release recipes recipes-check wheel demo clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build the tools into bin/
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false $(TAGS) -ldflags '$(LDFLAGS)' -o bin/ $(addprefix ./cmd/,$(PROGRAMS))
	@for tool in $(filter-out $(PROGRAMS),$(TOOLS)); do ln -sf ponos bin/$$tool || exit 1; done
	@set -e; for machine in $(MACHINES); do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$${machine#*=} $(GO) build -trimpath -buildvcs=false $(TAGS) -ldflags '$(LDFLAGS)' -o bin/libexec/$${machine%=*}/ ./cmd/ponos-worker ./cmd/jobpool; \
	done

# Without what costs time in each test program: "go vet", which "make lint" runs over everything, and tables for a
# debugger. With the tags of the tools, so that each package is compiled once.
QUICK := -vet=off -ldflags=-w $(TAGS)
# -count=1, as the end-to-end tests build the tools themselves, which go test does
# not see when it looks whether it can use an earlier result; -p and -parallel, as they mostly wait.
SCRIPTFLAGS := $(QUICK) -count=1 -p 6 -parallel 4 -timeout 60m
space := $(subst ,, )
# The race detector delays the exit of each program by a second, and the tests start many.
RACE ?= -race
# Without the race detector: packages that have no goroutines and compute much, and models of one goroutine.
PURE := $(addprefix ./lib/,advise/forecast advise/launcher pool pool/core)
# With SHORT=-short, without what searches a model long.
SHORT ?=
UNITS = $(QUICK) $(RACE) $(SHORT) -timeout 30m $$($(GO) list ./lib/... ./cmd/... | grep -vxE '.*/($(subst $(space),|,$(PURE:./%=%)))') -- $(QUICK) $(SHORT) $(PURE) $(if $(RACE),-- $(QUICK) -run 'Model|Interleaving' ./lib/agent)
# Without cgo, as the tools are built, but for the race detector.
GOTEST := env CGO_ENABLED=0 GORACE=atexit_sleep_ms=0 $(GO) run ./testscripts/gotest

test: ## run all tests, and report what this machine cannot run; those that need Slurm use a cluster of their own
	$(GOTEST) $(UNITS) -- $(SCRIPTFLAGS) $(TESTSCRIPTS)

test-unit: ## run the tests of the packages, with the race detector
	$(GOTEST) $(UNITS)

test-slurm: ## run the end-to-end tests, and fail where Slurm cannot be had
	$(if $(filter file,$(origin TESTSCRIPTS)),lib/packaging/tested --) env PONOS_TEST_SLURM=require $(GOTEST) $(SCRIPTFLAGS) $(TESTSCRIPTS)

# make and not its variable: a line with that is carried out by "make -n" too.
SUITE ?= test
test-user: ## run all tests but those on Slurm as an ordinary user, in a fresh clone and an empty home (needs root)
	testscripts/user/run env PONOS_TEST_SLURM=no make $(SUITE) RACE='$(RACE)' SHORT='$(SHORT)'

# The tests of the packages that ask for the time, in short, and of the tools that print times.
DATED = $$($(GO) list -f '{{range .Imports}}{{if eq . "github.com/ponos-tools/ponos/lib/base/clock"}}{{$$.ImportPath}}{{"\n"}}{{end}}{{end}}' ./lib/...)
test-bare: ## run all tests in a root of Debian with Go and make and nothing else: RELEASE=trixie (needs root)
	testscripts/debian/run -b $(RELEASE) env PONOS_TEST_SLURM=no make test

test-dates: ## run the tests that depend on the date
	$(GOTEST) $(QUICK) -short -timeout 30m $(DATED) -- $(SCRIPTFLAGS) ./testscripts/fairshare \
		-- $(SCRIPTFLAGS) -run 'Scripts|OnSlurm|Soonest|Reserved|Probe' ./testscripts/lfind \
		-- $(SCRIPTFLAGS) -run 'Normal|Midnight|Clock|Max|Reap|Crash' ./testscripts/vast

# ZONE is that of WHEN and of the tests.
WHEN ?= +40d
ZONE ?= UTC
SUITES ?= test-unit test-slurm
test-calendar: ## run all tests on another day: WHEN=+40d, or WHEN='2027-03-28 01:58' ZONE=Europe/Berlin (needs root)
	testscripts/calendar/run -z '$(ZONE)' '$(WHEN)' make $(SUITES)

# What passes whole is noted for "make release". With DAY=+40d, on that day.
RELEASE ?= trixie
test-debian: ## run the tests on real Slurm in a root of another Debian: RELEASE=trixie, bullseye, sid (needs root)
	$(if $(filter filefile,$(origin SLURMTESTS)$(origin SLURMSUITES)),lib/packaging/tested testscripts/debian/run $(RELEASE) --) \
		testscripts/debian/run $(RELEASE) $(if $(DAY),testscripts/calendar/run '$(DAY)') env PONOS_TEST_SLURM=require \
		$(GOTEST) $(SCRIPTFLAGS) -run $(SLURMTESTS) $(addprefix ./testscripts/,$(SLURMSUITES))

lint: $(TOOLDIR)/golangci-lint $(TOOLDIR)/govulncheck $(TOOLDIR)/deadcode ## check style, architecture, dead code, and for known vulnerabilities
	@test -z "$$(gofmt -l cmd lib testscripts completions man)" || { gofmt -l cmd lib testscripts completions man; exit 1; }
	$(TOOLDIR)/golangci-lint run --allow-parallel-runners --build-tags $(lastword $(TAGS)) ./...
	$(GO) test -vet=off -tags lint ./testscripts/layers
	@dead=$$($(TOOLDIR)/deadcode -test ./...) && test -z "$$dead" || { echo "$$dead"; exit 1; }
	$(GO) mod tidy -diff
	@said=$$($(TOOLDIR)/govulncheck ./lib/base/fault 2>&1) || case $$said in \
		*"fetching vulnerabilities"*) echo "make lint: known vulnerabilities were not looked for: https://vuln.go.dev cannot be reached"; exit 0 ;; \
	esac; $(TOOLDIR)/govulncheck ./...

fmt: ## format the source
	gofmt -w cmd lib testscripts completions man

# Some scripts fail with such tools, as they count system calls or the bytes of a program: what they
# have covered until then counts. COVER names fewer of them.
COVER ?= $(TESTSCRIPTS)
COVERDIR ?= $(CURDIR)/bin/cover
cover: ## print the share of the code that tests run, by package: those of the packages and the scripts (COVER=./testscripts/lfind)
	rm -rf '$(COVERDIR)' && mkdir -p '$(COVERDIR)/units' '$(COVERDIR)/scripts'
	$(GO) test -cover -timeout 30m ./lib/... ./cmd/... -args -test.gocoverdir='$(COVERDIR)/units' >'$(COVERDIR)/units.log' || { cat '$(COVERDIR)/units.log'; exit 1; }
	PONOS_TEST_COVER='$(COVERDIR)/scripts' $(GO) test $(SCRIPTFLAGS) $(COVER) >'$(COVERDIR)/scripts.log' 2>&1 || grep -E '^(FAIL|--- FAIL)' '$(COVERDIR)/scripts.log'
	@$(GO) tool covdata percent -i="$$(echo '$(COVERDIR)'/units '$(COVERDIR)'/scripts/* | tr ' ' ,)"
	@$(GO) tool covdata textfmt -i="$$(echo '$(COVERDIR)'/units '$(COVERDIR)'/scripts/* | tr ' ' ,)" -o '$(COVERDIR)/profile'
	@$(GO) tool cover -func='$(COVERDIR)/profile' | tail -n 1

SEED ?= 1
TIME ?= 75s
PROBES ?= 300
CHAOS ?= ./testscripts/chaos ./testscripts/vast ./testscripts/jobpool

chaos: ## break everything around agents and pools for TIME, by the choices of SEED: on a real Slurm, and on the market of the tests
	PONOS_TEST_SLURM=require $(GOTEST) -count=1 -v -timeout 60m -run '^(TestChaos|TestKilledAtEachSystemCall)$$' $(CHAOS) -seed=$(SEED) -time=$(TIME)

hostile: ## submit what lfind finds to 100 requests of each of five users, drawn from SEED, on a hostile cluster of real Slurm
	PONOS_TEST_SLURM=require PONOS_CASES=100 PONOS_SEED=$(SEED) $(GOTEST) -v -count=1 -timeout 60m ./testscripts/lfind/hostile

forecast: ## measure how good the forecasts of fairshare are: PROBES jobs on a real Slurm, about 5 s each, and 100 holes
	PONOS_TEST_SLURM=require PONOS_FORECAST=$(PROBES) PONOS_HOLES=100 $(GOTEST) -v -count=1 -run 'TestSlurm/(forecasts|sure_holes)' -timeout 180m ./testscripts/fairshare/cluster

bench: ## measure speed and memory, side by side with what they are compared to
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 60m ./lib/agent ./lib/advise/forecast ./lib/pool/core ./testscripts/...

# One test binary for each package, as most of the time goes into making them. With FUZZSEED they lack what guides the search
# by the code that an input reaches: that takes a second build of everything, and says little within a few hundred runs.
fuzz: ## run each fuzz target for FUZZTIME, with FUZZSEED=1 on much the same inputs each time
	@set -e; bin=$$(mktemp -d); trap 'rm -rf "$$bin"' EXIT; cache=$(if $(FUZZSEED),$$bin/cache,$$($(GO) env GOCACHE)/fuzz); \
	grep -rlE '^func Fuzz' lib cmd --include='*_test.go' | xargs -n 1 dirname | sort -u | while read -r dir; do \
		$(GO) test -c $(QUICK) $(if $(FUZZSEED),,-fuzz .) -o "$$bin/fuzz.test" "./$$dir"; \
		for target in $$(cat "$$dir"/*_test.go | sed -nE 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/p'); do \
			echo "$$dir $$target"; \
			(cd "$$dir" && $(if $(FUZZSEED),GODEBUG=fuzzseed=$(FUZZSEED)) "$$bin/fuzz.test" $(if $(FUZZSEED),-test.parallel 1) -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) -test.fuzzcachedir "$$cache/$$dir" >"$$bin/said" 2>&1) || \
				{ cat "$$bin/said"; exit 1; }; \
		done; \
	done

man: ## make the man pages of their sources
	$(GO) run ./man/generate -out man $(addsuffix .md,$(PAGES))

HTML ?= bin/html
html: ## make pages for a browser of the man pages, with an index: bin/html/index.html (HTML)
	$(GO) run ./man/generate -html -out '$(HTML)' $(addsuffix .md,$(PAGES))

completions: build ## make the shell completions of the tools' own flags
	$(GO) run ./completions/generate -bin bin -out completions $(TOOLS)

# Both in one shell, as the cluster tells where it is by variables.
pictures: build ## draw the pictures of the README (needs tmux, and what the cluster of the tests needs)
	@eval "$$(testscripts/cluster/up --clean)" && { $(GO) run ./testscripts/pictures -bin bin -out man/pictures; status=$$?; testscripts/cluster/down; exit $$status; }

# Slurm's headers say for which version of Slurm the plugin is.
SPANKFLAGS := -std=c11 -O2 -fPIC -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Werror \
	-fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffile-prefix-map=$(CURDIR)=. -shared -Wl,-z,relro,-z,now

spank: bin/spank/ponos.so ## build the SPANK plugin (needs slurm/spank.h)

# Always rebuilt: with other headers it is another plugin, and they are older than it.
bin/spank/ponos.so: lib/spank/ponos.c FORCE
	@mkdir -p $(@D)
	$(CC) $(SPANKFLAGS) $(CPPFLAGS) $(CFLAGS) -o $@.$$$$ $< && mv $@.$$$$ $@

FORCE:

install-spank: spank ## install the SPANK plugin (DESTDIR, LIBDIR); see spank_ponos(8) for plugstack.conf
	install -d $(DESTDIR)$(LIBDIR)/ponos
	install -m 644 bin/spank/ponos.so $(DESTDIR)$(LIBDIR)/ponos/ponos.so

install: build ## install tools, man pages, completions and examples (DESTDIR, PREFIX, MANDIR, DOCDIR)
	install -d $(DESTDIR)$(BINDIR)
	install -m 755 $(addprefix bin/,$(PROGRAMS)) $(DESTDIR)$(BINDIR)
	@for tool in $(filter-out $(PROGRAMS),$(TOOLS)); do ln -sf ponos $(DESTDIR)$(BINDIR)/$$tool || exit 1; done
	@for machine in $(MACHINES); do for program in ponos-worker jobpool; do \
		install -D -m 755 bin/libexec/$${machine%=*}/$$program $(DESTDIR)$(PREFIX)/libexec/ponos/$${machine%=*}/$$program || exit 1; \
	done; done
	@for page in $(PAGES); do \
		dir=$(DESTDIR)$(MANDIR)/man$${page##*.}; \
		install -d $$dir && install -m 644 $$page $$dir || exit 1; \
	done
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	@for tool in $(TOOLS); do \
		install -m 644 completions/bash/$$tool $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$tool && \
		install -m 644 completions/zsh/_$$tool $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$tool && \
		install -m 644 completions/fish/$$tool.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$tool.fish || exit 1; \
	done
	@for file in $(EXAMPLES); do install -D -m 644 $$file $(DESTDIR)$(DOCDIR)/$$file || exit 1; done

uninstall: ## remove what install has installed
	rm -rf $(DESTDIR)$(PREFIX)/libexec/ponos
	rm -f $(addprefix $(DESTDIR)$(BINDIR)/,$(TOOLS))
	@for page in $(notdir $(PAGES)); do rm -f $(DESTDIR)$(MANDIR)/man$${page##*.}/$$page; done
	@for tool in $(TOOLS); do rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$tool \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$tool $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$tool.fish; done
	@for file in $(EXAMPLES); do rm -f $(DESTDIR)$(DOCDIR)/$$file; done
	@if [ -d $(DESTDIR)$(DOCDIR) ]; then find $(DESTDIR)$(DOCDIR) -depth -type d -empty -delete; fi

entry: ## make the program that containers of rented machines fetch, and its sums, in bin/
	for arch in amd64 arm64; do CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -ldflags '-s -w -buildid=' -o bin/vast-entry-linux-$$arch ./lib/market/entry/vast-entry; done
	sha256sum bin/vast-entry-linux-*

dist: $(TOOLDIR)/nfpm ## make tarballs, packages, SBOM and checksums in dist/ (VERSION, ARCHS, OUT)
	VERSION='$(VERSION)' NFPM=$(TOOLDIR)/nfpm GO='$(GO)' lib/packaging/dist

release: $(TOOLDIR)/nfpm $(TOOLDIR)/govulncheck ## make dist/ of the tag of this commit, if tag, CHANGELOG.md and packages agree (ARCHS, OUT, VULNERABILITIES)
	OUT='$(or $(OUT),dist)' GO='$(GO)' MAKE='$(MAKE)' GOVULNCHECK='$(TOOLDIR)/govulncheck' VULNERABILITIES='$(VULNERABILITIES)' lib/packaging/release

recipes: ## fill the recipes for Spack, EasyBuild, conda, containers and modules in for the tarballs in dist/ (OUT, PREFIX)
	recipes/fill '$(or $(OUT),dist)' '$(or $(OUT),dist)/recipes'

recipes-check: recipes ## check the recipes by the tools that they are for, which pip installs
	recipes/check '$(or $(OUT),dist)' '$(or $(OUT),dist)/recipes' $(TOOLDIR)/recipes

wheel: build ## make the Python wheel of jobpool for this machine in dist/ (VERSION, OUT)
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false $(TAGS) -ldflags '$(LDFLAGS)' -o bin/wheel/ ./cmd/lfind
	lib/packaging/wheel '$(VERSION)' "$$($(GO) env GOARCH)" bin/jobpool bin/wheel/lfind '$(or $(OUT),dist)'

demo: build ## run three tasks to their end through a spool, and show states and logs
	PATH="$(CURDIR)/bin:$$PATH" testscripts/demo/run

clean: ## remove what was built
	rm -rf bin dist

$(TOOLDIR)/golangci-lint:
	GOBIN=$(TOOLDIR) $(GO) install $(GOLANGCI)

$(TOOLDIR)/deadcode:
	GOBIN=$(TOOLDIR) $(GO) install $(DEADCODE)

$(TOOLDIR)/govulncheck:
	GOBIN=$(TOOLDIR) $(GO) install $(GOVULN)

$(TOOLDIR)/nfpm:
	GOBIN=$(TOOLDIR) $(GO) install $(NFPM)
