package container

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/container/inside"
)

// programPackage is the package of the program that enters containers.
const programPackage = "cmd/evalrun-inside"

// machines are the architectures for which there is such a program.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// programs finds the programs that enter containers, once for each platform.
type programs struct {
	mu    sync.Mutex
	found map[string]string
}

var ownPrograms programs

// find finds the program for the containers of a platform. It is in the folder of evalrun, in inside/
// below it, or in share/evalrun beside it. Otherwise it is built of the checkout of which evalrun was
// built. executable is evalrun; empty for this process.
func (p *programs) find(executable, platform string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := executable + "\x00" + platform
	if at := p.found[key]; at != "" {
		return at, nil
	}
	arch := strings.TrimPrefix(platform, "linux/")
	if _, ok := machines[arch]; !ok {
		return "", fmt.Errorf("the Docker daemon's containers are %s, and evalrun has programs for those of linux/amd64 and linux/arm64 only",
			platform)
	}
	name := "evalrun-inside_linux_" + arch
	places := programFolders(executable)
	for _, dir := range places {
		at := filepath.Join(dir, name)
		if err := checkProgram(at, arch); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return "", fmt.Errorf("%s is not what evalrun puts into containers of %s: %w", at, platform, err)
		}
		p.keep(key, at)
		return at, nil
	}
	for _, dir := range places { // go install gives it this name, whatever it is for
		if at := filepath.Join(dir, path.Base(programPackage)); checkProgram(at, arch) == nil {
			p.keep(key, at)
			return at, nil
		}
	}
	at, err := buildProgram(name, arch)
	if err != nil {
		return "", fmt.Errorf("the program that evalrun puts into containers of %s is in none of %s, and cannot be built: %w; install a release of evalrun, or in its checkout: CGO_ENABLED=0 GOOS=linux GOARCH=%s go build -o %s ./%s",
			platform, strings.Join(places, ", "), err, arch, filepath.Join(places[0], name), programPackage)
	}
	p.keep(key, at)
	return at, nil
}

func (p *programs) keep(key, at string) {
	if p.found == nil {
		p.found = map[string]string{}
	}
	p.found[key] = at
}

// programFolders lists the folders in which the programs may be.
func programFolders(executable string) (places []string) {
	if executable == "" {
		executable, _ = os.Executable() // without it, that on PATH is left
	}
	onPath, _ := exec.LookPath("evalrun")
	for _, file := range []string{executable, onPath} {
		if file == "" {
			continue
		}
		if real, err := filepath.EvalSymlinks(file); err == nil {
			file = real
		}
		dir := filepath.Dir(file)
		for _, place := range []string{dir, filepath.Join(dir, "inside"), filepath.Join(filepath.Dir(dir), "share", "evalrun")} {
			if !slices.Contains(places, place) {
				places = append(places, place)
			}
		}
	}
	return places
}

// checkProgram returns why a file cannot be the program for an architecture, of the version of this evalrun.
func checkProgram(path, arch string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	if f.Machine != machines[arch] {
		return fmt.Errorf("it is a program for %v", f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("it needs a C library, which an image may not have: build it with CGO_ENABLED=0")
		}
	}
	text, err := os.ReadFile(path)
	if err == nil && !bytes.Contains(text, []byte(inside.Source)) {
		err = errors.New("it is of another version than this evalrun; remove it, or replace it by that of the same release")
	}
	return err
}

// buildTimeout is how long the building of the program may take.
const buildTimeout = 10 * time.Minute

// buildProgram builds the program of the checkout that this program was built of.
func buildProgram(name, arch string) (string, error) {
	_, source, _, _ := runtime.Caller(0)
	top := filepath.Dir(filepath.Dir(filepath.Dir(source)))
	if _, err := os.Stat(filepath.Join(top, filepath.FromSlash(programPackage), "main.go")); !filepath.IsAbs(top) || err != nil {
		return "", errors.New("the checkout that this evalrun was built of is not there")
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(top))
	dir := filepath.Join(cache, "evalrun", "inside-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	part, err := os.MkdirTemp(dir, "part-") // several processes may build at the same time
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(part) }()
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(part, name), "./"+programPackage)
	cmd.Dir, cmd.Env = top, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./%s in %s: %w: %s", programPackage, top, err, lastLine(strings.TrimSpace(string(out))))
	}
	at := filepath.Join(dir, name)
	return at, os.Rename(filepath.Join(part, name), at)
}
