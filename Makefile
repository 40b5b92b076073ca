# Each target is a stage of CI, by the same script; see CONTRIBUTING.md.
stages := fresh modules compiler format docs vet lint dist tools test race long postgres images browser sdks promptfoo published exports frameworks uipath scipy lab crash chaos fuzz bench
.PHONY: all build check ci golden pictures site vuln speed-python $(stages)

all: build
build: # static, because it enters images, whatever C library they have
	CGO_ENABLED=0 go build ./cmd/evalrun
check:
	.ci/run modules format docs vet lint
pictures:
	cd internal/test/browser && go test -count=1 -run TestPictures . -update
ci:
	.ci/run
$(stages) golden site vuln speed-python:
	.ci/run $@
