package image

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// timedBuilder is a builder whose builds take as long as they may, or no time.
type timedBuilder struct {
	builder // nothing else is called
	endless bool
	// limited has what was called with a limit.
	limited []string
}

func (b *timedBuilder) called(ctx context.Context, what string) {
	if _, ok := ctx.Deadline(); ok {
		b.limited = append(b.limited, what)
	}
}

func (b *timedBuilder) build(ctx context.Context, dir, _ string, _ io.Writer) (string, error) {
	b.called(ctx, "build")
	if _, err := os.Stat(filepath.Join(dir, "a")); err != nil {
		return "", err
	}
	if b.endless {
		<-ctx.Done()
		return "", command{program: "/bin/true"}.run(ctx, nil, nil)
	}
	return "1", nil
}

func (b *timedBuilder) content(ctx context.Context, _ string) ([]byte, []layer, error) {
	b.called(ctx, "content")
	system, arch, _ := strings.Cut(platform(), "/")
	return fmt.Appendf(nil, `{"os":%q,"architecture":%q,"config":{}}`, system, arch), nil, nil
}

func (*timedBuilder) bases(string) ([]base, error) { return nil, nil }
func (*timedBuilder) places() []string             { return nil }
func (*timedBuilder) layersDir() string            { return "" }
func (*timedBuilder) String() string               { return "timed" }

// T24: the limit of a build is for the build alone, and not for what is copied before and after it. A
// build that reaches it says so. The image of this builder has no layer, which makes one with nothing
// in it.
func TestTheLimitIsForTheBuildAlone(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"Dockerfile": "FROM scratch\nCOPY a /\n", "a": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	try := func(b *timedBuilder, limit time.Duration) error {
		t.Helper()
		im, err := Open(t.TempDir(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := im.dir.prepare(); err != nil {
			t.Fatal(err)
		}
		log, err := newBuildLog(filepath.Join(t.TempDir(), "log"), func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		defer log.close()
		s := Spec{Context: dir, Timeout: limit}
		tmp := im.dir.path("tmp", "1")
		if err := os.Mkdir(tmp, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err = im.makeWith(t.Context(), b, s, tmp, log, func(string) {}); err != nil {
			err = failed(s, err, log, im.dir.ifFull)
		}
		return err
	}
	var b timedBuilder
	if err := try(&b, time.Hour); err != nil || strings.Join(b.limited, " ") != "build" {
		t.Errorf("limited: %v, %v", b.limited, err)
	}
	err := try(&timedBuilder{endless: true}, time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "could not be built: it took longer than build_timeout_sec, 1ms") {
		t.Errorf("got %v", err)
	}
}
