package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// OwnPodman gives podman, for the rest of the process, a storage in a folder in place of the
// user's, and settings with which it works as root on a plain Debian. TestMain calls end at its
// end, and then removes the folder.
func OwnPodman(dir string) (end func(), err error) {
	err = os.MkdirAll(dir, 0o700)
	for variable, text := range map[string]string{
		"CONTAINERS_CONF": "[containers]\ndefault_ulimits = [\"nofile=20000:20000\", \"nproc=4096:4096\"]\nnetns = \"host\"\n[engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n",
		"CONTAINERS_STORAGE_CONF": fmt.Sprintf("[storage]\ndriver = \"overlay\"\nrunroot = \"%s/r\"\ngraphroot = \"%s/g\"\n",
			dir, dir),
	} {
		file := filepath.Join(dir, variable)
		err = errors.Join(err, os.WriteFile(file, []byte(text), 0o600), os.Setenv(variable, file))
	}
	return func() { _ = exec.Command("umount", filepath.Join(dir, "g", "overlay")).Run() }, err // podman leaves it mounted
}
