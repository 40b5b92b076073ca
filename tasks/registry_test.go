package tasks

import (
	"strings"
	"testing"
)

// The hash was computed by Harbor 0.24 (harbor.publisher.packager) of the same files.
func TestCheckDigest(t *testing.T) {
	const harborHash = "fd2065c1c164b92d92035e4bb82089f6cbbaf3c6702cf1bc8c9bfeafc859a71c"
	dir := t.TempDir()
	for name, content := range map[string]string{
		"task.toml": "schema_version = \"1.4\"\n", "instruction.md": "x\n", "tests/test.sh": "true\n", "tests/__pycache__/a.pyc": "no",
		"environment/Dockerfile": "FROM debian\n", "notes.txt": "not published", "solution/solve.sh~": "no",
	} {
		write(t, dir, name, content)
	}
	own, err := Digest(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, digest := range []string{own, harborHash} {
		if err := CheckDigest(dir, digest); err != nil {
			t.Error(err)
		}
	}
	if err := CheckDigest(dir, strings.Repeat("0", 64)); err == nil || !strings.Contains(err.Error(), harborHash) {
		t.Errorf("a wrong digest: %v", err)
	}
}

func TestFindDataset(t *testing.T) {
	all := []RegistryDataset{{Name: "a", Version: "1.0"}, {Name: "a", Version: "2.0"}, {Name: "b", Version: "head"}}
	for reference, want := range map[string]string{"a@1.0": "a@1.0", "b": "b@head", "b@head": "b@head"} {
		if d, err := FindDataset(all, reference); err != nil || d.String() != want {
			t.Errorf("%s: %v, %v", reference, d, err)
		}
	}
	for reference, why := range map[string]string{"a": "name one of a@1.0, a@2.0", "a@3": `no data set "a@3", only a@1.0`, "": "no data set"} {
		if d, err := FindDataset(all, reference); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, %v", reference, d, err)
		}
	}
}
