package pack

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

var manifest = Manifest{Evalrun: "v1", StoreID: "s", PackedAt: time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC), Runs: []Run{{ID: "r", Name: "Set", Status: "suspended"}}}

// packed is a pack of a folder with all that a workspace may have.
func packed(t *testing.T) (dir string, data []byte, left []string) {
	t.Helper()
	dir = t.TempDir()
	long := strings.Repeat("n", 255)
	for name, text := range map[string]string{"w/tool": "#!/bin/sh\n", "w/" + long: "long", "w/deep/er/file": strings.Repeat("x", 100_000), "w/ünï\ncode": ""} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	noon := time.Date(2020, 1, 2, 12, 0, 0, 5, time.UTC)
	err := errors.Join(os.Chmod(filepath.Join(dir, "w/tool"), 0o755), os.Chtimes(filepath.Join(dir, "w/tool"), noon, noon), os.MkdirAll(filepath.Join(dir, "w/empty/deep"), 0o700),
		os.Symlink("deep/er/../er/file", filepath.Join(dir, "w/inside")), os.Symlink("/etc/passwd", filepath.Join(dir, "w/absolute")), os.Symlink("../../../x", filepath.Join(dir, "w/out")),
		os.MkdirAll(filepath.Join(dir, "w/upper/x"), 0o700), os.Chmod(filepath.Join(dir, "w/deep"), 0o500))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "w/deep"), 0o700) })
	var out bytes.Buffer
	w, err := NewWriter(&out, manifest)
	if err == nil {
		err = errors.Join(w.Tree("work/1", filepath.Join(dir, "w"), "upper"), w.Tree("work/2", filepath.Join(dir, "missing")), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, out.Bytes(), w.Left
}

// X1: what is extracted is what was packed: files, modes, times, empty folders, links that stay inside.
func TestWhatIsPackedIsExtracted(t *testing.T) {
	from, data, left := packed(t)
	if diff := cmp.Diff([]string{"work/1/absolute", "work/1/out"}, left); diff != "" {
		t.Error(diff)
	}
	to := t.TempDir()
	m, err := Extract(bytes.NewReader(data), to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "work/1/deep"), 0o700) })
	want := manifest
	want.Format, want.Version = format, Version
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	a, b := tree(t, filepath.Join(from, "w")), tree(t, filepath.Join(to, "work/1"))
	for _, gone := range []string{"absolute", "out", "upper", "upper/x"} {
		delete(a, gone)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
}

// tree says of each file its mode, its time if it is a file, and what is in it.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case e.Type().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += info.ModTime().UTC().String() + string(data)
		case !e.IsDir():
			if text, err = os.Readlink(path); err != nil {
				return err
			}
		}
		below, err := filepath.Rel(root, path)
		out[below] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// X1: a pack that was cut anywhere, or in which any byte has changed, is refused.
func TestDamagedPacks(t *testing.T) {
	from, data, _ := packed(t)
	try := func(what string, at int, bad []byte) {
		t.Helper()
		dir := t.TempDir()
		_, err := Extract(bytes.NewReader(bad), dir)
		if what == "changed" && err == nil { // a bit that says nothing
			if want, got := tree(t, filepath.Join(from, "w/deep")), tree(t, filepath.Join(dir, "work/1/deep")); !cmp.Equal(want, got) {
				t.Errorf("changed at %d, unnoticed", at)
			}
			err = &InvalidError{}
		}
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, _ error) error { // to be removed
			if e != nil && e.IsDir() {
				_ = os.Chmod(path, 0o700)
			}
			return nil
		})
		if !errors.As(err, new(*InvalidError)) {
			t.Errorf("%s at %d of %d: %v", what, at, len(data), err)
		}
	}
	for at := 0; at < len(data); at += 1 + len(data)/150 {
		try("cut", at, data[:at])
		changed := bytes.Clone(data)
		changed[at] ^= 0x10
		try("changed", at, changed)
	}
	try("longer", len(data), append(bytes.Clone(data), 0))
	try("twice", len(data), append(bytes.Clone(data), data...))
	try("empty", 0, nil)
}

// made is a pack with any entries, whose list is right.
func made(t *testing.T, m string, entries ...tar.Header) []byte {
	t.Helper()
	var out, list bytes.Buffer
	zip, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zip)
	add := func(h tar.Header, text string) {
		h.Size = int64(len(text))
		if h.Mode == 0 {
			h.Mode = 0o600
		}
		sum := sha256.Sum256([]byte(text + h.Linkname))
		list.WriteString(line(h.Typeflag, h.Mode, sum[:], strings.TrimSuffix(h.Name, "/")))
		err := w.WriteHeader(&h)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Name: manifestName, Typeflag: tar.TypeReg}, m)
	for _, h := range entries {
		add(h, "")
	}
	said := list.String()
	add(tar.Header{Name: listName, Typeflag: tar.TypeReg}, said)
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// X1: names and links that lead elsewhere, other versions and other things are refused, with the reason.
func TestHostilePacks(t *testing.T) {
	good := `{"format":"evalrun-pack","version":1}`
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"an absolute path":       {made(t, good, file("/etc/x")), "the absolute path"},
		"a path above":           {made(t, good, file("../x")), "leads out of its folder"},
		"a path above, within":   {made(t, good, file("work/1/../../../x")), "leads out of its folder"},
		"a path that is not one": {made(t, good, file("work//x")), "leads out of its folder"},
		"an absolute link":       {made(t, good, link("work/1/x", "/etc")), "leads out of its folder"},
		"a link above":           {made(t, good, link("work/1/x", "../2/y")), "leads out of its folder"},
		"a link at the top":      {made(t, good, link("work", "runs")), "leads out of its folder"},
		"a hard link":            {made(t, good, tar.Header{Name: "work/1/x", Typeflag: tar.TypeLink, Linkname: "work/1/y"}), "neither a file nor a folder"},
		"a device":               {made(t, good, tar.Header{Name: "work/1/x", Typeflag: tar.TypeChar}), "neither a file nor a folder"},
		"a name twice":           {made(t, good, file("work/1/x"), file("work/1/x")), "twice"},
		"a link behind a link":   {made(t, good, link("work/1/p/q/a", "../.."), link("work/1/p/q/a/l", "../../../x")), "leads through a link"},
		"a file behind a link":   {made(t, good, link("work/1/a", "b"), file("work/1/a/x")), "leads through a link"},
		"a file as a folder":     {made(t, good, file("work/1/x"), file("work/1/x/y")), "a file and a folder"},
		"a folder as a file":     {made(t, good, file("work/1/x/y"), file("work/1/x")), "a file and a folder"},
		"a folder as a link":     {made(t, good, tar.Header{Name: "work/1/x/", Typeflag: tar.TypeDir, Mode: 0o700}, link("work/1/x", "y")), "twice"},
		"a set-uid file":         {made(t, good, tar.Header{Name: "work/1/x", Typeflag: tar.TypeReg, Mode: 0o4755}), "a mode that no file"},
		"a later version":        {made(t, `{"format":"evalrun-pack","version":2,"evalrun":"v9"}`), "version 2 of the format"},
		"another format":         {made(t, `{"format":"other","version":1}`), "not a packed run"},
		"no manifest":            {made(t, `nothing`), "not a packed run"},
		"text":                   {[]byte("version: 1\n"), "not a packed run"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Extract(bytes.NewReader(c.data), dir)
			if !errors.As(err, new(*InvalidError)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			for path := range tree(t, dir) {
				if path != "." && !strings.HasPrefix(path, "work") {
					t.Errorf("%s was written", path)
				}
			}
		})
	}
}

// A file under a link of the same pack is not written through it.
func TestNothingIsWrittenThroughALink(t *testing.T) {
	dir := t.TempDir()
	data := made(t, `{"format":"evalrun-pack","version":1}`, tar.Header{Name: "work/1/a/", Typeflag: tar.TypeDir, Mode: 0o700},
		tar.Header{Name: "work/1/l", Typeflag: tar.TypeSymlink, Linkname: "a"}, tar.Header{Name: "work/1/l/x", Typeflag: tar.TypeReg})
	if _, err := Extract(bytes.NewReader(data), dir); err == nil {
		t.Error("it was extracted")
	}
	if _, err := os.Lstat(filepath.Join(dir, "work/1/a/x")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("it was written through the link")
	}
}
