package image_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/testenv"
)

// layers are an image of folders, the uppermost first.
func layers(dirs ...string) *image.Image { return &image.Image{Digest: "sha256:test", Lower: dirs} }

// packages are those of an image, as one sorted list.
func packages(t *testing.T, i *image.Image) (all []string) {
	t.Helper()
	found, err := i.Packages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for manager, some := range found {
		for _, one := range some {
			all = append(all, manager+" "+one)
		}
	}
	slices.Sort(all)
	return all
}

// Given layers as an overlay has them, then the packages are those that the overlay shows: a file
// above hides the one below, and what was removed is gone.
func TestPackagesAreThoseThatTheOverlayShows(t *testing.T) {
	below := folder(t,
		"var/lib/dpkg/status", "Package: old\nStatus: install ok installed\nVersion: 1\n",
		"lib/apk/db/installed", "C:Q1x=\nP:musl\nV:1.2.5-r0\nA:x86_64\n\nP:busybox\nV:1.36\n",
		"usr/lib/python3/dist-packages/zope.interface-5.5.dist-info/METADATA", "",
		"opt/venv/lib/python3.11/site-packages/requests-2.0.dist-info/METADATA", "",
		"opt/venv/lib/python3.11/site-packages/~equests-1.0.dist-info/METADATA", "",
		"usr/lib/node_modules/npm/package.json", `{"name": "npm", "version": "10.0.0"}`,
		"usr/lib/node_modules/npm/node_modules/inner/package.json", `{"version": "1.0.0"}`,
		"usr/lib/node_modules/@scope/tool/package.json", `{"version": "2.0.0"}`,
		"app/node_modules/odd/package.json", `{"version": 5}`,
		"removed/node_modules/gone/package.json", `{"version": "1.0.0"}`,
		"replaced/node_modules/gone/package.json", `{"version": "1.0.0"}`)
	above := folder(t,
		"var/lib/dpkg/status", "Package: curl\nStatus: install ok installed\nDescription: x\n Package: none\nVersion: 7.88.1-10\n\n"+
			"Package: half\nStatus: deinstall ok config-files\nVersion: 1\n\nPackage: libc6\r\nStatus: install ok installed\r\nVersion: 2.36",
		"opt/venv/lib/python3.11/site-packages/six-1.16.dist-info/METADATA", "",
		"usr/lib/node_modules/npm/package.json", `{"version": "10.1.0"}`,
		"replaced", "a file")
	if err := syscall.Mknod(filepath.Join(above, "removed"), syscall.S_IFCHR, 0); err != nil {
		t.Skip("this user makes no whiteouts: ", err)
	}
	want := []string{"apk busybox 1.36", "apk musl 1.2.5-r0", "apt curl 7.88.1-10", "apt libc6 2.36",
		"npm @scope/tool 2.0.0", "npm npm 10.1.0", "pip requests 2.0", "pip six 1.16", "pip zope.interface 5.5"}
	if got := packages(t, layers(above, below)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := syscall.Setxattr(filepath.Join(above, "opt/venv/lib"), "trusted.overlay.opaque", []byte("y"), 0); err != nil {
		t.Skip("here are no attributes of overlays: ", err)
	}
	if got := packages(t, layers(above, below)); slices.Contains(got, "pip requests 2.0") || !slices.Contains(got, "pip six 1.16") {
		t.Errorf("opaque: %q", got)
	}
}

// Given an image that somebody has made to harm, then nothing outside of it is read, nothing waits,
// and what is too large is said.
func TestPackagesOfHostileImages(t *testing.T) {
	secret := folder(t, "status", "Package: secret\nVersion: 1\n", "node_modules/secret/package.json", `{"version": "1"}`)
	dir := folder(t, "var/lib/dpkg/x", "", "a/node_modules/x/y", "", "b/node_modules/bad/package.json", "{{",
		"c/node_modules/lines/package.json", `{"version": "1\n2\u001b"}`)
	status := filepath.Join(dir, "var/lib/dpkg/status")
	if err := errors.Join(os.Symlink(filepath.Join(secret, "status"), status),
		os.Symlink(secret, filepath.Join(dir, "out")), os.Symlink("../../../../../../..", filepath.Join(dir, "up")),
		syscall.Mkfifo(filepath.Join(dir, "a/node_modules/x/package.json"), 0o600),
		os.Symlink(filepath.Join(secret, "node_modules"), filepath.Join(dir, "c/node_modules/linked"))); err != nil {
		t.Fatal(err)
	}
	if got := packages(t, layers(dir)); len(got) > 0 {
		t.Errorf("got %q", got)
	}
	if err := errors.Join(os.Remove(status), os.WriteFile(status, nil, 0o600), os.Truncate(status, 1<<40)); err != nil {
		t.Fatal(err)
	}
	if _, err := layers(dir).Packages(t.Context()); err == nil || !strings.Contains(err.Error(), "var/lib/dpkg/status has more than 64 MB") {
		t.Errorf("a huge file: %v", err)
	}
	deep := t.TempDir()
	if err := os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", 220)), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := layers(deep).Packages(t.Context()); err == nil || !strings.Contains(err.Error(), "folders in more than 200 others") {
		t.Errorf("deep: %v", err)
	}
}

// Given an image that was written down, when it is built again with the same packages, then nothing
// differs but digests; when a package has changed, it is named.
func TestRecordedImage(t *testing.T) {
	testenv.NeedPodman(t)
	const dockerfile = "FROM scratch\nCOPY a /var/lib/dpkg/status\nCOPY b /usr/lib/python3/x-1.dist-info/METADATA\n"
	context := folder(t, "Dockerfile", dockerfile, "a", "Package: p\nVersion: 1\n", "b", "")
	images := open(t, t.TempDir())
	record := func() image.Recorded {
		s := image.Spec{Context: context}
		r, err := images.Record(t.Context(), s, "Dockerfile", get(t, images, s))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	was := record()
	if want := (image.Packages{"apt": {"p 1"}, "pip": {"x 1"}}); !reflect.DeepEqual(was.Packages, want) || len(was.Context) != 64 {
		t.Fatalf("got %+v", was)
	}
	again := was
	again.Image = "sha256:other"
	if d := was.Differences(&again, false); len(d) > 0 {
		t.Errorf("another digest: %q", d)
	}
	if d := was.Differences(&again, true); len(d) != 1 || !strings.HasPrefix(d[0], "the image was sha256:") {
		t.Errorf("exactly: %q", d)
	}
	if err := os.WriteFile(filepath.Join(context, "a"), []byte("Package: p\nVersion: 2\n\nPackage: q\nVersion: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := record()
	want := []string{"the build context has other files", "apt: p was 1 and is 2", "apt: q 1 is new"}
	if d := was.Differences(&now, false); !slices.Equal(d, want) {
		t.Errorf("got %q", d)
	}
	if d := now.Differences(&was, false); !slices.Contains(d, "apt: q 1 is gone") {
		t.Errorf("got %q", d)
	}
}
