package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a Dockerfile copies into a folder of the system lies beside what is there, and covers
// nothing.
func TestFilesOutsideOfTheWorkingDirectoryCoverNothing(t *testing.T) {
	l := Layout{Root: t.TempDir(), Workdir: "/srv/app", OwnTree: true}
	for _, inside := range []string{"/usr/bin/mine", "/opt/evalrun-none/a", "/opt/evalrun-none/b", "/srv/data/x", "/srv/app/y", "/logs/z", "/home/agent/.rc", "/etc/hostname"} {
		below, rel := l.Locate(inside)
		path := filepath.Join(below, rel)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(inside), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	binds, err := l.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range binds {
		rel, err := filepath.Rel(l.Root, b.Host)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b.Inside+" "+rel)
	}
	slices.Sort(got)
	want := []string{
		"/ files", "/etc/hostname files/etc/hostname", "/home/agent home", "/logs logs", "/opt/evalrun-none files/opt/evalrun-none", "/run run", "/srv/app workspace", "/tmp tmp",
		"/usr/bin/mine files/usr/bin/mine", "/var/tmp var-tmp",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(filepath.Join(l.Dir(FolderHome), ".rc")); err != nil {
		t.Error(err)
	}
}
