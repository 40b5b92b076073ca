package image

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Recorded is what an image was when it was written down, so that a later one can be compared.
type Recorded struct {
	// Of says where a task names the image.
	Of string `json:"of"`
	// Context is the digest of what was to be built: the build context as the builder sees it, and the
	// platform. It is empty for an image that was only pulled.
	Context string `json:"context,omitempty"`
	// Bases are the images on which it was built, or the one that was pulled, as far as the builder
	// tells.
	Bases []base `json:"bases,omitempty"`
	// Image is the digest of the image.
	Image    string   `json:"image"`
	Packages Packages `json:"packages"`
}

// Record describes an image that was got for a request.
func (im *Images) Record(ctx context.Context, s Spec, of string, i *Image) (r Recorded, err error) {
	key, err := s.key()
	if err != nil {
		return r, err
	}
	var m made
	if err := readJSON(im.dir.path("keys", key+".json"), &m); err != nil {
		return r, err
	}
	r = Recorded{Of: of, Image: i.Digest, Bases: m.Bases}
	if s.Context != "" {
		r.Context = key
	}
	r.Packages, err = i.Packages(ctx)
	return r, err
}

// Differences says what a later image has otherwise. Two builds never have the same digest, so those
// of image and bases count only if exact is set.
func (r *Recorded) Differences(now *Recorded, exact bool) (all []string) {
	if r.Context != now.Context {
		all = append(all, "the build context has other files")
	}
	managers := map[string]bool{}
	for manager := range r.Packages {
		managers[manager] = true
	}
	for manager := range now.Packages {
		managers[manager] = true
	}
	for _, manager := range slices.Sorted(maps.Keys(managers)) {
		was, is := byName(r.Packages[manager]), byName(now.Packages[manager])
		names := slices.AppendSeq(slices.Collect(maps.Keys(was)), maps.Keys(is))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			switch x, y := was[name], is[name]; {
			case x == y:
			case x == "":
				all = append(all, fmt.Sprintf("%s: %s %s is new", manager, name, y))
			case y == "":
				all = append(all, fmt.Sprintf("%s: %s %s is gone", manager, name, x))
			default:
				all = append(all, fmt.Sprintf("%s: %s was %s and is %s", manager, name, x, y))
			}
		}
	}
	if exact || len(all) > 0 {
		for _, b := range r.Bases {
			at := slices.IndexFunc(now.Bases, func(other base) bool { return other.Name == b.Name })
			if at >= 0 && now.Bases[at].ID != b.ID {
				all = append(all, fmt.Sprintf("the base %s was %s and is %s", b.Name, b.ID, now.Bases[at].ID))
			}
		}
	}
	if exact && r.Image != now.Image {
		all = append(all, fmt.Sprintf("the image was %s and is %s", r.Image, now.Image))
	}
	return all
}

// byName are the versions of packages, several in one text.
func byName(packages []string) map[string]string {
	all := map[string]string{}
	for _, one := range packages {
		name, version, _ := strings.Cut(one, " ")
		if all[name] != "" {
			version = all[name] + " and " + version
		}
		all[name] = version
	}
	return all
}
