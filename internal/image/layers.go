package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
)

// layer is one layer of an image at its builder.
type layer struct {
	// id is the digest of the layer's archive.
	id string
	// dir has the layer as an overlay wants it. Files that it removes are devices 0:0.
	dir string
}

// folder is the name of a layer's folder. It is short because the paths of all layers of an image
// have to fit into one page, mount(2).
func (l layer) folder() string {
	_, hex, _ := strings.Cut(l.id, ":")
	return hex[:min(len(hex), 24)]
}

// emptyLayer is the layer of images that have none.
const emptyLayer = "empty"

// install copies a layer into the folder of layers, unless it is there. Either the layer is there
// whole and durable, or not at all.
func (d directory) install(ctx context.Context, l layer, tmp string) error {
	to := d.path("layers", l.folder())
	if _, err := os.Lstat(to); err == nil {
		return nil
	}
	if l.folder() == "" {
		return fmt.Errorf("a layer has the digest %q", l.id)
	}
	half := filepath.Join(tmp, l.folder())
	// cp keeps owners, hard links, extended attributes, holes and devices.
	if out, err := exec.CommandContext(ctx, "cp", "-a", "--reflink=auto", l.dir, half).CombinedOutput(); err != nil {
		return fmt.Errorf("copying %s: %w\n%s", l.dir, err, out)
	}
	if err := syncFileSystem(half); err != nil {
		return err
	}
	if err := os.Rename(half, to); err != nil {
		return err
	}
	return durable.Sync(d.path("layers"))
}

// record is what is stored about an image.
type record struct {
	Digest string `json:"digest"`
	Config Config `json:"config"`
	// Layers are folders, the uppermost first.
	Layers []string  `json:"layers"`
	Made   time.Time `json:"made"`
}

// keep installs an image of a builder: first its layers, then its record, which says that they are
// there.
func (im *Images) keep(ctx context.Context, b builder, id, tmp string) (digest string, err error) {
	document, layers, err := b.content(ctx, id)
	if err != nil {
		return "", err
	}
	var described struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
		Config       Config `json:"config"`
	}
	if err := json.Unmarshal(document, &described); err != nil {
		return "", fmt.Errorf("the configuration of image %s: %w", id, err)
	}
	if got := described.OS + "/" + described.Architecture; got != platform() {
		return "", &wrongPlatform{got}
	}
	r := record{Digest: "sha256:" + id, Config: described.Config, Made: time.Now()}
	r.Config.complete()
	if len(layers) == 0 {
		nothing := filepath.Join(tmp, "nothing") // beside the copy, which has the layer's name
		if err := os.Mkdir(nothing, 0o755); err != nil {
			return "", err
		}
		layers = []layer{{"none:" + emptyLayer, nothing}}
	}
	for _, l := range slices.Backward(layers) {
		if slices.Contains(r.Layers, l.folder()) {
			continue // everything in it is above, and no overlay takes a folder twice
		}
		if err := im.dir.install(ctx, l, tmp); err != nil {
			return "", err
		}
		r.Layers = append(r.Layers, l.folder())
	}
	return r.Digest, im.dir.write(r, "images", id+".json")
}

type wrongPlatform struct{ platform string }

func (w *wrongPlatform) Error() string {
	return "an image for " + w.platform
}

// open locks an image for use and returns it. It returns nil if there is none.
func (im *Images) open(digest string) (*Image, error) {
	id := id(digest)
	if id == "" || strings.Contains(id, "/") {
		return nil, fmt.Errorf("%q is not the digest of an image", digest)
	}
	use, err := lockShared(im.dir.path("locks", id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // there are no images at all
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := readJSON(im.dir.path("images", id+".json"), &r); err != nil || r.Digest != digest {
		return nil, errors.Join(err, use.Close())
	}
	now := time.Now()
	_ = os.Chtimes(use.Name(), now, now) // this matters only for the age of unused images
	i := &Image{Digest: digest, Config: r.Config, use: use, dir: im.dir}
	for _, folder := range r.Layers {
		i.Lower = append(i.Lower, im.dir.path("layers", folder))
	}
	return i, nil
}
