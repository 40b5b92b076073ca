package container

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mattn/go-shellwords"

	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/image"
)

// imageOf is the image of a service: one that is built, or one with a name.
func imageOf(definition map[string]any) image.Spec {
	build, ok := definition["build"].(map[string]any)
	if !ok {
		return image.Spec{Reference: definition["image"].(string)}
	}
	out := image.Spec{Context: build["context"].(string), Args: map[string]string{}}
	if file, ok := build["dockerfile"].(string); ok {
		out.Dockerfile = filepath.Join(out.Context, file)
	}
	out.Target, _ = build["target"].(string)
	switch args := build["args"].(type) {
	case map[string]any:
		for name, value := range args {
			if value != nil {
				out.Args[name] = fmt.Sprint(value)
			}
		}
	case []any:
		for _, one := range args {
			if name, value, set := strings.Cut(fmt.Sprint(one), "="); set {
				out.Args[name] = value
			}
		}
	}
	return out
}

// specOf translates what a compose file says of a service into the words of the daemon.
func specOf(definition map[string]any) (docker.Spec, error) {
	r := &valueReader{of: definition}
	s := docker.Spec{Entrypoint: r.words("entrypoint"), Cmd: r.words("command"), WorkingDir: r.text("working_dir"),
		User: r.text("user"), Hostname: r.text("hostname"), StopSignal: r.text("stop_signal"),
		Tty: r.is("tty"), OpenStdin: r.is("stdin_open")}
	s.Env, _ = definition["environment"].([]string)
	s.Healthcheck.Test = []string{"NONE"}
	memory := r.bytes("mem_limit")
	s.HostConfig = docker.HostConfig{Memory: memory, MemorySwap: memory, NanoCpus: int64(r.number("cpus") * 1e9),
		ShmSize: r.bytes("shm_size"), ReadonlyRootfs: r.is("read_only"), Init: r.is("init"), PidsLimit: servicePIDs,
		Tmpfs: tmpfsOf(definition)}
	return s, r.err
}

// servicePIDs is how many processes a service may have, as in podman.
const servicePIDs = 2048

// valueReader reads the values of a service, which may have any type. It keeps the first error.
type valueReader struct {
	of  map[string]any
	err error
}

func (r *valueReader) text(key string) string {
	if v := r.of[key]; v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

func (r *valueReader) fail(key, want string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: expected %s, got %q", key, want, r.text(key))
	}
}

// words are the words of a command: those of a list, or those that a shell would make of a text.
func (r *valueReader) words(key string) []string {
	text, ok := r.of[key].(string)
	if !ok {
		return wordsOf(r.of[key])
	}
	p := shellwords.NewParser()
	words, err := p.Parse(text)
	switch {
	case err != nil:
		r.fail(key, "a command whose quotes are closed")
	case p.Position >= 0: // it stops there, and leaves the rest out
		r.fail(key, `words without ; & | < > outside of quotes, which take a shell (sh -c "...")`)
	}
	return words
}

func (r *valueReader) is(key string) bool {
	v, err := strconv.ParseBool(r.text(key))
	if err != nil && r.of[key] != nil {
		r.fail(key, "true or false")
	}
	return v
}

func (r *valueReader) number(key string) float64 {
	v, err := strconv.ParseFloat(r.text(key), 64)
	if (err != nil || v < 0 || v > math.MaxInt32) && r.of[key] != nil {
		r.fail(key, "a number")
		return 0
	}
	return v
}

// bytes reads a size such as 512m, 1.5gb or 1024.
func (r *valueReader) bytes(key string) int64 {
	if v, isNumber := r.of[key].(float64); isNumber {
		return int64(v)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(strings.TrimSpace(r.text(key))), "b"), "i")
	if text == "" {
		return 0
	}
	shift := max(0, 10*(strings.IndexByte("kmgt", text[len(text)-1])+1))
	if shift > 0 {
		text = strings.TrimSpace(text[:len(text)-1])
	}
	v, err := strconv.ParseFloat(text, 64)
	if v *= float64(int64(1) << shift); err != nil || v < 0 || v > math.MaxInt64/2 {
		r.fail(key, "a size such as 512m or 2g")
		return 0
	}
	return int64(v)
}
