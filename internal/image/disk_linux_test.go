package image_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/testenv"
)

// smallDisk is a folder of so many bytes until the end of the test.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("a small disk needs root:", err)
	}
	t.Cleanup(func() {
		_ = exec.Command("umount", filepath.Join(dir, "images", "storage", "root", "overlay")).Run() // podman leaves it mounted
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Given a disk that is too small for an image, whichever of its copies is the one that does not fit, it is a fault
// that says what to do, nothing half is there, and once there is room the image is made.
func TestDiskFull(t *testing.T) {
	testenv.NeedPodman(t)
	for name, size := range map[string]string{"in the build": "6m", "in the commit": "14m", "before it": "1m"} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t, size)
			images := open(t, filepath.Join(dir, "images"))
			spec := image.Spec{Context: folder(t, "Dockerfile", "FROM scratch\nCOPY a /\n", "a", strings.Repeat("0123456789abcdef", 5<<16))}
			_, err := images.Get(t.Context(), spec, nil)
			faultOf(t, err, fault.Image, "the disk is full: free some of the disk of "+filepath.Join(dir, "images"))
			for _, pattern := range []string{"images/*", "keys/*", "layers/*", "tmp/*"} {
				if left, _ := filepath.Glob(filepath.Join(dir, "images", pattern)); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			}
			if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=200m"); err != nil {
				t.Fatal(err)
			}
			if i := get(t, images, spec); len(read(t, i, "a")) != 5<<20 {
				t.Errorf("%+v", i)
			}
		})
	}
}
