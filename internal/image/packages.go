package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"
)

// Packages are the packages of an image, by the program that installs them: apt, apk, pip or npm.
// Each is a name and a version with a space between. They are sorted.
type Packages map[string][]string

// The bounds of what is read of an image, which anybody may have made.
const (
	maxEntries = 2 << 20
	maxDepth   = 200
	maxFile    = 64 << 20
)

// Packages reads which packages an image has out of the files of its layers; nothing in it is run.
// These are the packages in the databases of dpkg and apk, Python's (*.dist-info) in any folder, and
// those of Node.js in each node_modules that is in no other.
func (i *Image) Packages(ctx context.Context) (Packages, error) {
	r := &packageReader{found: map[string]map[string]bool{}}
	var layers []*os.Root
	for _, dir := range i.Lower {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		defer root.Close() //nolint:errcheck // it was only read
		layers = append(layers, root)
	}
	if err := r.walk(ctx, ".", layers, 0); err != nil {
		return nil, fmt.Errorf("the packages of the image %s cannot be read: %w", i.Digest, err)
	}
	all := Packages{}
	for manager, packages := range r.found {
		for one := range packages {
			all[manager] = append(all[manager], one)
		}
		slices.Sort(all[manager])
	}
	return all, nil
}

// packageReader walks through the tree that an overlay of layers shows. It follows no link.
type packageReader struct {
	entries int
	found   map[string]map[string]bool
}

// add adds a package. What has no version, or more than one line, is none.
func (r *packageReader) add(manager, name, version string) {
	one := name + " " + version
	if name == "" || version == "" || strings.ContainsFunc(one, unicode.IsControl) {
		return
	}
	if r.found[manager] == nil {
		r.found[manager] = map[string]bool{}
	}
	r.found[manager][strings.ToValidUTF8(one, "\uFFFD")] = true
}

// shown is an entry of a folder as an overlay shows it.
type shown struct {
	// layers are those in which a folder lies, or the one in which a file does, the uppermost first.
	layers []*os.Root
	// folder and regular say what it is. open says that a lower layer may add to the folder.
	folder, open, regular bool
}

// list returns what a folder has in several layers, the uppermost first.
func (r *packageReader) list(dir string, layers []*os.Root) (map[string]*shown, error) {
	all := map[string]*shown{}
	for _, layer := range layers {
		hides, err := r.read(layer, dir, func(e os.DirEntry) {
			switch s := all[e.Name()]; {
			case s == nil: // a file that was removed is a device here
				all[e.Name()] = &shown{[]*os.Root{layer}, e.IsDir(), e.IsDir(), e.Type().IsRegular()}
			case s.open && e.IsDir():
				s.layers = append(s.layers, layer)
			default:
				s.open = false
			}
		})
		if err != nil {
			return nil, err
		}
		if hides {
			break
		}
	}
	return all, nil
}

// read calls entry for each entry of a folder of a layer. hides says that the folder hides what the
// layers below have there.
func (r *packageReader) read(layer *os.Root, dir string, entry func(os.DirEntry)) (hides bool, err error) {
	f, err := layer.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close() // it was only read
	for {
		some, err := f.ReadDir(1000)
		if r.entries += len(some); r.entries > maxEntries {
			return false, fmt.Errorf("it has more than %d files", maxEntries)
		}
		for _, e := range some {
			entry(e)
		}
		if errors.Is(err, io.EOF) {
			return isOpaque(f), nil
		}
		if err != nil {
			return false, err
		}
	}
}

func (r *packageReader) walk(ctx context.Context, dir string, layers []*os.Root, depth int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if depth > maxDepth {
		return fmt.Errorf("it has folders in more than %d others", maxDepth)
	}
	entries, err := r.list(dir, layers)
	if err != nil {
		return err
	}
	for name, e := range entries {
		at := path.Join(dir, name)
		python, isPython := strings.CutSuffix(name, ".dist-info")
		switch {
		case e.regular:
			err = r.database(at, e.layers[0])
		case !e.folder:
		case isPython:
			if last := strings.LastIndex(python, "-"); last > 0 && python[0] != '~' { // pip removes those with ~
				r.add("pip", python[:last], python[last+1:])
			}
		case name == "node_modules":
			err = r.modules(at, "", e.layers)
		default:
			err = r.walk(ctx, at, e.layers, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// modules reads the packages in a node_modules, or in the folder of a scope there.
func (r *packageReader) modules(dir, scope string, layers []*os.Root) error {
	entries, err := r.list(dir, layers)
	if err != nil {
		return err
	}
	for name, e := range entries {
		at := path.Join(dir, name)
		if !e.folder || strings.HasPrefix(name, ".") {
			continue
		}
		if scope == "" && strings.HasPrefix(name, "@") {
			if err := r.modules(at, name+"/", e.layers); err != nil {
				return err
			}
			continue
		}
		files, err := r.list(at, e.layers)
		if err != nil {
			return err
		}
		manifest := files["package.json"]
		if manifest == nil || !manifest.regular {
			continue
		}
		text, err := content(manifest.layers[0], path.Join(at, "package.json"))
		if err != nil {
			return err
		}
		var said struct{ Version string }
		if json.Unmarshal(text, &said) == nil { // npm installs none without a version
			r.add("npm", scope+name, said.Version)
		}
	}
	return nil
}

// database reads a file if it is the database of a package manager.
func (r *packageReader) database(file string, layer *os.Root) error {
	manager, keys := "apt", [2]string{"Package: ", "Version: "}
	switch file {
	case "var/lib/dpkg/status":
	case "lib/apk/db/installed", "usr/lib/apk/db/installed":
		manager, keys = "apk", [2]string{"P:", "V:"}
	default:
		return nil
	}
	text, err := content(layer, file)
	if err != nil {
		return err
	}
	name, version, installed := "", "", true
	for line := range bytes.Lines(append(text, '\n', '\n')) {
		line := strings.TrimRight(string(line), "\r\n")
		if line == "" {
			if installed {
				r.add(manager, name, version)
			}
			name, version, installed = "", "", true
		}
		if value, ok := strings.CutPrefix(line, keys[0]); ok {
			name = value
		} else if value, ok := strings.CutPrefix(line, keys[1]); ok {
			version = value
		} else if value, ok := strings.CutPrefix(line, "Status: "); ok && manager == "apt" {
			installed = strings.HasSuffix(value, " installed")
		}
	}
	return nil
}

// content reads a file that has a sensible size.
func content(layer *os.Root, file string) ([]byte, error) {
	f, err := layer.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has more than %d MB", file, maxFile>>20)
	}
	return io.ReadAll(f)
}
