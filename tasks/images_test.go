package tasks

import (
	"path/filepath"
	"testing"
)

// Given tasks with images for the agent, the tests and the steps, then each is found once, with
// what makes it.
func TestImages(t *testing.T) {
	dir := t.TempDir()
	images := func(document string, files ...string) []Image {
		t.Helper()
		write(t, dir, "task.toml", document)
		for _, name := range files {
			write(t, dir, name, "FROM a\n")
		}
		task, problems := Load(dir)
		if err := problems.Err(false); err != nil {
			t.Fatal(err)
		}
		all := task.Images()
		for i := range all {
			all[i].Hidden = nil
		}
		return all
	}
	equal(t, "none", images(""), []Image(nil))
	equal(t, "a name", images("[environment]\ndocker_image = 'a:1'\nbuild_timeout_sec = 5"),
		[]Image{{Key: "environment.docker_image", Reference: "a:1", BuildTimeoutSec: 5, StorageMB: 10240}})
	own := Image{Key: "environment/Dockerfile", Context: filepath.Join(dir, "environment"), BuildTimeoutSec: 600, StorageMB: 10240}
	equal(t, "a Dockerfile", images("", "environment/Dockerfile"), []Image{own})
	equal(t, "tests that share it", images("", "tests/Dockerfile"), []Image{own})
	equal(t, "tests of their own", images("[verifier]\nenvironment_mode = 'separate'"),
		[]Image{own, {Key: "tests/Dockerfile", Context: filepath.Join(dir, "tests"), BuildTimeoutSec: 600, StorageMB: 10240}})
	equal(t, "tests with a name", images("[verifier.environment]\ndocker_image = 'b'\nstorage_mb = 50")[1],
		Image{Key: "verifier.environment.docker_image", Reference: "b", Context: filepath.Join(dir, "tests"), BuildTimeoutSec: 600, StorageMB: 50})
	task, _ := Load(dir)
	equal(t, "hidden", task.Image().Hidden, []string{filepath.Join(dir, "tests")})
	equal(t, "a step", images("[[steps]]\nname = 's'\n[steps.verifier.environment]\nos = 'linux'", "steps/s/tests/Dockerfile", "steps/s/instruction.md")[1].Key, "steps/s/tests/Dockerfile")
}
