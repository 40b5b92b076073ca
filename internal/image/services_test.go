package image_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Given images of services of which one has a container, one is kept for a folder, one was used just
// now and one is neither, then they are listed with that, and that one alone is collected; an image
// of another name is left alone.
func TestCollectServices(t *testing.T) {
	testenv.NeedPodman(t)
	images := open(t, t.TempDir())
	podman := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("podman", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("podman %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	var names []string
	for _, tag := range []string{"used", "kept", "new", "unused"} {
		name := image.ServiceImages + ":" + tag
		podman("build", "-q", "-t", name, folder(t, "Dockerfile", "FROM scratch\nCOPY a /\n", "a", tag))
		names = append(names, name)
	}
	podman("tag", names[3], "localhost/other:unused")
	t.Cleanup(func() { podman("rmi", "localhost/other:unused") })
	container := podman("create", names[0], "/a")
	later, keeper := time.Now().Add(time.Hour), t.TempDir()
	if err := images.KeepService(names[1], keeper); err != nil {
		t.Fatal(err)
	}
	all, err := images.Services(t.Context())
	if err != nil || len(all) != 4 || all[0].Of[0] != names[1] { // which was used last
		t.Fatalf("%+v, %v", all, err)
	}
	for _, e := range all {
		if e.InUse != (e.Of[0] == names[0]) || slices.Contains(e.Kept, keeper) != (e.Of[0] == names[1]) || e.Bytes == 0 || e.OwnBytes != e.Bytes || time.Since(e.Made) > time.Hour {
			t.Errorf("%+v", e)
		}
	}
	collect := func(since time.Time, dryRun bool, want ...string) {
		t.Helper()
		removed, bytes, err := images.CollectServices(t.Context(), since, dryRun)
		var got []string
		for _, e := range removed {
			got = append(got, e.Of...)
		}
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) || len(want) > 0 && bytes <= 0 {
			t.Errorf("%v, %d bytes, %v; expected %v", got, bytes, err, want)
		}
	}
	collect(all[3].Used.Add(-time.Second), false)
	collect(later, true, names[2], names[3])
	// What was used since is as good as new.
	if err := images.KeepService(names[2], filepath.Join(keeper, "gone")); err != nil {
		t.Fatal(err)
	}
	collect(all[1].Used, false, names[3])
	podman("image", "exists", "localhost/other:unused")
	podman("rm", container)
	if err := os.Remove(keeper); err != nil {
		t.Fatal(err)
	}
	collect(later, false, names[1], names[2], names[0])
	if left := podman("images", "-q", image.ServiceImages); left != "" {
		t.Error("left:", left)
	}
}
