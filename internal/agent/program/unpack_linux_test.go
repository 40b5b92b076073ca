package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// Where nothing can be written into the cache, the error says which folder that is, and nothing is
// written anywhere else.
func TestUnpackIntoCacheThatCannotBeWritten(t *testing.T) {
	work, cache := t.TempDir(), t.TempDir()
	t.Chdir(work)
	t.Setenv("XDG_CACHE_HOME", cache)
	if err := os.Mkdir(filepath.Join(cache, "evalrun"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self", filepath.Join(cache, "evalrun", "files")); err != nil { // there not even root can write
		t.Fatal(err)
	}
	_, err := Unpack(fstest.MapFS{"below/file.py": {Data: []byte("pass")}}, "files")
	if err == nil || !strings.Contains(err.Error(), "XDG_CACHE_HOME") {
		t.Error(err)
	}
	if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}
