package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/testenv"
)

// registry is a registry that whatever the test starts trusts.
type registry struct{ *testenv.Registry }

func newRegistry(t *testing.T) *registry {
	r := &registry{testenv.NewRegistry()}
	t.Cleanup(r.Close)
	home := filepath.Join(t.TempDir(), "home")
	if err := r.Trust(home); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	return r
}

// entry is a file of a layer: a folder if its name ends in /, a link if target is set.
type entry struct{ name, content, target string }

// push puts an image into the registry and returns its name.
func (r *registry) push(t *testing.T, tag, architecture string, layers ...[]entry) string {
	t.Helper()
	type descriptor struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int    `json:"size"`
	}
	var diffIDs []string
	var described []descriptor
	for _, files := range layers {
		var plain, packed bytes.Buffer
		w := tar.NewWriter(&plain)
		for _, e := range files {
			h := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(e.content)), Uid: 7, Gid: 7}
			switch {
			case e.target != "":
				h.Typeflag, h.Linkname = tar.TypeSymlink, e.target
			case strings.HasSuffix(e.name, "/"):
				h.Typeflag, h.Mode = tar.TypeDir, 0o755
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(w, e.content) // Close says what is wrong
		}
		z := gzip.NewWriter(&packed)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		_, _ = z.Write(plain.Bytes()) // into memory
		_ = z.Close()
		diffIDs = append(diffIDs, fmt.Sprintf("sha256:%x", sha256.Sum256(plain.Bytes())))
		described = append(described, descriptor{"application/vnd.oci.image.layer.v1.tar+gzip", r.Blob(packed.Bytes()), packed.Len()})
	}
	document := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	config := document(map[string]any{"architecture": architecture, "os": "linux", "config": map[string]any{"User": "app", "Env": []string{"A=b"}}, "rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs}})
	manifest := document(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": descriptor{"application/vnd.oci.image.config.v1+json", r.Blob(config), len(config)}, "layers": described})
	return r.Tag(tag, manifest)
}

func (r *registry) layered(t *testing.T) string {
	return r.push(t, "layered", runtime.GOARCH,
		[]entry{{name: "etc/"}, {name: "etc/a", content: "low"}, {name: "etc/gone", content: "x"}, {name: "d/"}, {name: "d/old", content: "x"}, {name: "out", target: "/etc/hostname"}},
		[]entry{{name: "etc/"}, {name: "etc/a", content: "high"}, {name: "etc/.wh.gone"}, {name: "d/"}, {name: "d/.wh..wh..opq"}, {name: "d/new", content: "y"}})
}

// Given an image in a registry, when it is got by its name, then it is pulled once, and is there
// without the registry.
func TestPull(t *testing.T) {
	testenv.NeedPodman(t)
	r, dir := newRegistry(t), t.TempDir()
	name := r.layered(t)
	i := get(t, open(t, dir), image.Spec{Reference: name})
	if read(t, i, "etc/a") != "high" || read(t, i, "d/new") != "y" || i.Config.User != "app" || len(i.Lower) != 2 || i.Made == 0 {
		t.Errorf("got %+v", i)
	}
	r.Clear()
	if again := get(t, open(t, dir), image.Spec{Reference: name}); again.Digest != i.Digest || again.Made != 0 {
		t.Errorf("got %+v", again)
	}
	_, err := open(t, t.TempDir()).Get(t.Context(), image.Spec{Reference: r.Host + "/some/image:none"}, nil)
	faultOf(t, err, fault.Image, r.Host+"/some/image:none is not on this machine, and could not be pulled")

	// Where a Dockerfile could make it as well, it is built.
	built := get(t, open(t, dir), image.Spec{Reference: r.Host + "/some/image:none", Context: folder(t, "Dockerfile", "FROM scratch\nCOPY a /\n", "a", "x")})
	if read(t, built, "a") != "x" {
		t.Errorf("got %+v", built)
	}
}

// Given an image for another platform, then it is a fault that names both.
func TestPullOfAnotherPlatform(t *testing.T) {
	testenv.NeedPodman(t)
	r := newRegistry(t)
	name := r.push(t, "other", "riscv64", []entry{{name: "a", content: "x"}})
	_, err := open(t, t.TempDir()).Get(t.Context(), image.Spec{Reference: name}, nil)
	faultOf(t, err, fault.Image, "is an image for linux/riscv64, and this machine runs linux/"+runtime.GOARCH)
}

// Given an ordinary user, then an image is pulled and unpacked for that user, one whose files lead
// out of it is refused, and a Dockerfile is not runnable, with the reason.
func TestOrdinaryUser(t *testing.T) {
	if _, err := exec.LookPath("skopeo"); err != nil {
		testenv.Need(t, testenv.Podman, err)
	}
	r := newRegistry(t)
	good := r.layered(t)
	bad := r.push(t, "bad", runtime.GOARCH, []entry{{name: "link", target: "/tmp"}}, []entry{{name: "link/escaped", content: "x"}})
	if os.Geteuid() != 0 {
		asOrdinaryUser(t, t.TempDir(), good, bad)
		return
	}
	asNobody(t, "TestAsNobody", good, bad)
}

// asNobody runs a test of this package as nobody, in a folder of nobody's: see [nobodys].
func asNobody(t *testing.T, test string, more ...string) {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chown(dir, 65534, 65534), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "test")
	data, err := os.ReadFile(os.Args[0])
	if err = errors.Join(err, os.WriteFile(program, data, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run", "^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), "EVALRUN_TEST_NOBODY="+strings.Join(append([]string{dir}, more...), "\n"), "TMPDIR="+dir, "XDG_RUNTIME_DIR="+dir)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// nobodys are what asNobody has given this process: a folder, and what was to be handed on.
func nobodys(t *testing.T) []string {
	given := os.Getenv("EVALRUN_TEST_NOBODY")
	if given == "" {
		t.Skip("it is no test of its own")
	}
	return strings.Split(given, "\n")
}

// T28: an ordinary user who wants to build is not sent for a program that could not build either.
func TestAnOrdinaryUserCannotBuild(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t, "TestNobodyCannotBuild")
		return
	}
	cannotBuild(t, t.TempDir())
}

// TestNobodyCannotBuild is the process that TestAnOrdinaryUserCannotBuild starts.
func TestNobodyCannotBuild(t *testing.T) { cannotBuild(t, nobodys(t)[0]) }

func cannotBuild(t *testing.T, dir string) {
	t.Setenv("PATH", "")
	t.Setenv("EVALRUN_BUILDER", "")
	build := image.Spec{Context: folder(t, "Dockerfile", "FROM scratch\n")}
	im := open(t, filepath.Join(dir, "images"))
	_, err := im.Get(t.Context(), build, nil)
	faultOf(t, err, fault.NotRunnable, "built only by root")
	faultOf(t, im.Missing(build), fault.NotRunnable, "built only by root")
	faultOf(t, im.Missing(image.Spec{Reference: "debian"}), fault.NotRunnable, "this machine has no skopeo")
}

// TestAsNobody is the process that TestOrdinaryUser starts.
func TestAsNobody(t *testing.T) {
	parts := nobodys(t)
	asOrdinaryUser(t, parts[0], parts[1], parts[2])
}

func asOrdinaryUser(t *testing.T, dir, good, bad string) {
	dir = filepath.Join(dir, "images")
	i := get(t, open(t, dir), image.Spec{Reference: good})
	if len(i.Lower) != 1 || read(t, i, "etc/a") != "high" || read(t, i, "d/new") != "y" || i.Config.User != "app" {
		t.Errorf("got %+v", i)
	}
	for _, name := range []string{"etc/gone", "d/old", "etc/.wh.gone"} {
		if _, err := os.Lstat(filepath.Join(i.Lower[0], name)); err == nil {
			t.Errorf("%s is there", name)
		}
	}
	_, err := open(t, dir).Get(t.Context(), image.Spec{Reference: bad}, nil)
	faultOf(t, err, fault.Image, "escapes")
	if _, err := os.Lstat("/tmp/escaped"); err == nil {
		t.Error("a file was written outside")
	}
	build := image.Spec{Context: folder(t, "Dockerfile", "FROM scratch\n")}
	_, err = open(t, dir).Get(t.Context(), build, nil)
	faultOf(t, err, fault.NotRunnable, "built only by root")
	faultOf(t, open(t, dir).Missing(build), fault.NotRunnable, "built only by root")
	if err := open(t, dir).Missing(image.Spec{Reference: good}); err != nil {
		t.Error(err)
	}
	i.Release()
	if removed, _, err := open(t, dir).Collect(t.Context(), time.Now(), false, func() {}); err != nil || len(removed) != 1 {
		t.Errorf("%+v, %v", removed, err)
	}
}
