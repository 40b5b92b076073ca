package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// layerOf is the archive of a layer.
func layerOf(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg {
			h.Size = 1
		}
		if h.Mode == 0 && h.Typeflag != tar.TypeXGlobalHeader {
			h.Mode = 0o755
		}
		if h.Uid = os.Getuid(); h.Typeflag == tar.TypeXGlobalHeader {
			h.Uid = 0
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = w.Write([]byte("x")) // Close says what is wrong
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// flat unpacks layers into one folder.
func flat(ctx context.Context, t *testing.T, layers ...[]byte) (string, error) {
	t.Helper()
	dir := t.TempDir()
	root, err := makeRoot(filepath.Join(dir, "archive"))
	if err != nil {
		t.Fatal(err)
	}
	a := &archive{root: root}
	for i, data := range layers {
		a.layers = append(a.layers, string(rune('a'+i)))
		if err := root.WriteFile(a.layers[i], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "root"), a.flatten(ctx, filepath.Join(dir, "root"))
}

// What leads out of the image is refused, whatever it is called, and so is what takes away a folder
// by a name that is none.
func TestHostileLayers(t *testing.T) {
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, []byte("whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: outside}
	keep := tar.Header{Name: "d/keep", Typeflag: tar.TypeReg}
	for name, c := range map[string]struct {
		entries []tar.Header
		want    string
	}{
		"a file through a link":          {[]tar.Header{link, {Name: "link/victim", Typeflag: tar.TypeReg}}, "escapes"},
		"a folder through a link":        {[]tar.Header{link, {Name: "link/x/", Typeflag: tar.TypeDir}}, "escapes"},
		"a hard link through a link":     {[]tar.Header{link, {Name: "hard", Typeflag: tar.TypeLink, Linkname: "link/victim"}}, "escapes"},
		"a hard link out":                {[]tar.Header{{Name: "hard", Typeflag: tar.TypeLink, Linkname: "../../../.." + victim}}, "no such file"},
		"a whiteout through a link":      {[]tar.Header{link, {Name: "link/.wh.victim", Typeflag: tar.TypeReg}}, "escapes"},
		"an opaque folder by a link":     {[]tar.Header{link, {Name: "link/.wh..wh..opq", Typeflag: tar.TypeReg}}, "escapes"},
		"a whiteout of nothing":          {[]tar.Header{keep, {Name: "d/.wh.", Typeflag: tar.TypeReg}}, `"d/.wh." takes away no file`},
		"a whiteout of its own folder":   {[]tar.Header{keep, {Name: "d/.wh..", Typeflag: tar.TypeReg}}, `"d/.wh.." takes away no file`},
		"a whiteout of the folder above": {[]tar.Header{keep, {Name: "d/e/.wh...", Typeflag: tar.TypeReg}}, `"d/e/.wh..." takes away no file`},
	} {
		if _, err := flat(t.Context(), t, layerOf(t, c.entries...)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if data, err := os.ReadFile(victim); err != nil || string(data) != "whole" {
			t.Errorf("%s: the file outside has %q, %v", name, data, err)
		}
	}
}

// What is strange and harmless is unpacked as others do it.
func TestStrangeLayers(t *testing.T) {
	dir, err := flat(t.Context(), t, layerOf(t,
		tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "of git archive"}},
		tar.Header{Name: "../../up", Typeflag: tar.TypeReg},
		tar.Header{Name: "suid", Typeflag: tar.TypeReg, Mode: 0o4755},
		tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
		tar.Header{Name: "d/", Typeflag: tar.TypeDir}, tar.Header{Name: "d/.wh..wh.plnk", Typeflag: tar.TypeReg},
		tar.Header{Name: "absolute", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		tar.Header{Name: "suid", Typeflag: tar.TypeReg, Mode: 0o4755},
	))
	if err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "absolute")); err != nil || target != "/etc/passwd" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "up")); err != nil {
		t.Error(err)
	}
	suid, err := os.Stat(filepath.Join(dir, "suid"))
	if root := os.Geteuid() == 0; err != nil || (suid.Mode()&os.ModeSetuid != 0) != root {
		t.Errorf("%v, %v", suid.Mode(), err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "null")); (err == nil) != (os.Geteuid() == 0) {
		t.Errorf("the device: %v", err)
	}
}

// A file that is nearly all holes takes no more of the disk than it has to, in both forms in which
// archives have them, and its unpacking ends when nobody wants it any more.
func TestSparseLayers(t *testing.T) {
	for _, format := range []string{"gnu", "pax"} {
		sparse := func(size int64) []byte {
			dir := t.TempDir()
			err := os.WriteFile(filepath.Join(dir, "f"), []byte("begin"), 0o600)
			if err = errors.Join(err, os.Truncate(filepath.Join(dir, "f"), size)); err != nil {
				t.Fatal(err)
			}
			data, err := exec.Command("tar", "--format="+format, "--sparse", "-C", dir, "-c", "f").Output()
			if err != nil {
				t.Skip("GNU tar is needed:", err)
			}
			return data
		}
		dir, err := flat(t.Context(), t, sparse(1<<30))
		if err != nil {
			t.Fatal(format, err)
		}
		info, err := os.Stat(filepath.Join(dir, "f"))
		if err != nil || info.Size() != 1<<30 || info.Sys().(*syscall.Stat_t).Blocks > 1000 { //nolint:forcetypeassert // on Linux it is one
			t.Errorf("%s: %+v, %v", format, info, err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errTooLong)
		_, err = flat(ctx, t, sparse(1<<42))
		cancel()
		if !errors.Is(err, errTooLong) {
			t.Errorf("%s: %v", format, err)
		}
	}
}
