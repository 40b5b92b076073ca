package snapshot

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// whatAgentsDo is a session in the root of an image: all the ways to change what is below.
const whatAgentsDo = `
echo changed >>kept/file
rm gone
rm -r replaced && mkdir replaced && echo new >replaced/new
mv moved elsewhere
mv folder renamed 2>/dev/null || { cp -a folder renamed; rm -r folder; }
ln kept/file kept/other
ln -s /nowhere kept/link
mkfifo kept/pipe
chmod 4755 tool
touch -d 2001-02-03 old
truncate -s 1G sparse && echo end >>sparse
mkdir -p opt/new/empty
printf x >"kept/$(printf 'new\nline')"
`

// A snapshot of the upper folder of a real overlay, restored somewhere else, shows the same root
// again: what was deleted is deleted, what was replaced is replaced, and the image is as it was.
func TestOverlayIsTheSameAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o755))
	lower := filepath.Join(dir, "lower")
	for path, content := range map[string]string{
		"kept/file": "of the image", "gone": "x", "replaced/old": "x", "moved": "x", "folder/a": "a", "folder/b/c": "c", "tool": "#!/bin/sh", "old": "x", "opt/present": "x",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(lower, path)), 0o755))
		must(t, os.WriteFile(filepath.Join(lower, path), []byte(content), 0o644))
	}
	options, overlay := "index=off,metacopy=off,redirect_dir=off", OverlayTrusted
	if os.Geteuid() != 0 {
		options, overlay = "userxattr", OverlayUser
	}
	see := func(root, script string) string {
		h := helper{Lower: lower, Upper: filepath.Join(root, "upper"), Work: filepath.Join(root, "work"), Merged: filepath.Join(root, "merged"), Options: options, Script: script}
		for _, dir := range []string{h.Upper, h.Work, h.Merged} {
			must(t, os.MkdirAll(dir, 0o755))
		}
		cmd := h.command(t)
		inMountNamespace(cmd)
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		err := cmd.Run()
		if err != nil && strings.HasPrefix(said.String(), "mount:") || cmd.Process == nil {
			t.Skipf("overlays cannot be mounted here: %v %s", err, said.String())
		}
		if err != nil {
			t.Fatalf("%v: %s", err, said.String())
		}
		return out.String()
	}
	here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
	s := &Store{Dir: filepath.Join(dir, "snapshots"), Root: here, Overlay: overlay}
	defer func() { must(t, RemoveAll(dir)) }()
	see(here, whatAgentsDo)
	before := see(here, "") // the mount of the session still gave some files their numbers of before
	for _, want := range []string{`"kept/other" 100644`, `"replaced/new"`, `"elsewhere"`, `"renamed/b/c"`, `"tool" 104755`} {
		if !strings.Contains(before, want) {
			t.Fatalf("the session did not do what it should: no %s in\n%s", want, before)
		}
	}
	taken(t, s, "1", "upper")

	elsewhere := *s
	elsewhere.Root = there
	must(t, os.MkdirAll(there, 0o755))
	must(t, elsewhere.Restore("1"))
	after := see(there, "")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the root, restored:\n%s", diff)
	}
	for _, gone := range []string{`"gone"`, `"replaced/old"`, `"moved"`, `"folder`} {
		if strings.Contains(after, gone) {
			t.Errorf("%s is there again", gone)
		}
	}
}

func TestOverlayOfAnOrdinaryUserIsTheSameAgain(t *testing.T) {
	t.Parallel()
	asNobody(t, "TestOverlayIsTheSameAgain")
}
