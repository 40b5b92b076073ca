package image_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Given images of which one is in use, one is kept for a folder and one is neither, when garbage is
// collected, then that goes with its own layers; with the folder and the use the others go.
func TestCollect(t *testing.T) {
	testenv.NeedPodman(t)
	dir := t.TempDir()
	images := open(t, dir)
	build := func(content string) *image.Image {
		return get(t, images, image.Spec{Context: folder(t, "Dockerfile", "FROM scratch\nCOPY common /\nCOPY a /\n", "common", "x", "a", content)})
	}
	used, kept, unused := build("used"), build("kept"), build("unused")
	folder := t.TempDir()
	if err := kept.Keep(folder); err != nil {
		t.Fatal(err)
	}
	kept.Release()
	unused.Release()
	list, err := images.List()
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, e := range list {
		if e.InUse != (e.Digest == used.Digest) || (len(e.Kept) > 0) != (e.Digest == kept.Digest) || e.Bytes <= e.OwnBytes || e.OwnBytes == 0 || len(e.Of) != 1 {
			t.Errorf("%+v", e)
		}
	}
	collect := func(since time.Time, dryRun bool, want ...string) {
		t.Helper()
		removed, bytes, err := images.Collect(t.Context(), since, dryRun, func() { t.Error("nobody else collects") })
		var got []string
		for _, e := range removed {
			got = append(got, e.Digest)
		}
		if err != nil || !slices.Equal(got, want) || len(want) > 0 && bytes <= 0 {
			t.Errorf("%v, %d bytes, %v; expected %v", got, bytes, err, want)
		}
	}
	collect(time.Now(), true, unused.Digest)
	collect(time.Now().Add(-time.Hour), false)
	collect(time.Now(), false, unused.Digest)
	if i, err := images.Reopen(unused.Digest); i != nil || err != nil {
		t.Errorf("it is there: %+v, %v", i, err)
	}
	if read(t, used, "common") != "x" || read(t, kept, "common") != "x" {
		t.Error("a layer is gone that others have")
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	collect(time.Now(), false, kept.Digest)
	used.Release()
	collect(time.Now(), false, used.Digest)
	for _, pattern := range []string{"layers/*", "images/*", "keys/*", "logs/*", "pins/*", "tmp/*", "storage"} {
		if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}
