package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The labels of everything that is made here. The value of labelRollout is the marker of the
// rollout. That of labelOwner distinguishes the process that has made it from every other.
const (
	labelRollout = "dev.evalrun.rollout"
	labelOwner   = "dev.evalrun.owner"
)

func labels(rollout string) []string {
	return []string{labelRollout + "=" + rollout, labelOwner + "=" + owner(os.Getpid())}
}

// containerName is the name of the container of a rollout.
func containerName(rollout string) string { return "evalrun-" + short(rollout) }

func short(rollout string) string {
	sum := sha256.Sum256([]byte(rollout))
	return hex.EncodeToString(sum[:8])
}

// owner distinguishes a process of this machine from every other, also from one that gets its id
// later. It is made of boot, PID namespace, id and start time. It is empty if there is no such
// process.
func owner(pid int) string {
	boot, space, start := bootID(), pidSpace(), startOf(pid)
	if boot == "" || space == "" || start == "" {
		return ""
	}
	return fmt.Sprintf("%s:%s:%d:%s", boot, space, pid, start)
}

// isGone reports whether the process that made something is dead. For another PID namespace nobody
// can tell.
func isGone(made string) bool {
	parts := strings.Split(made, ":")
	if len(parts) != 4 {
		return false
	}
	pid, err := strconv.Atoi(parts[2])
	if err != nil {
		return false
	}
	ours := strings.Split(owner(os.Getpid()), ":")
	if len(ours) != 4 {
		return false
	}
	if ours[0] != parts[0] {
		return true // the machine was started anew, and no container runs since then
	}
	return ours[1] == parts[1] && owner(pid) != made
}

// kind is a kind of resource of an engine.
type kind struct {
	name string
	// labels is the place of the labels in the output of inspect.
	labels string
	list   []string
}

var (
	containerKind = kind{"container", ".Config.Labels", []string{"ps", "-a", "--format", "{{.Names}}"}}
	networkKind   = kind{"network", ".Labels", []string{"network", "ls", "--format", "{{.Name}}"}}
	volumeKind    = kind{"volume", ".Labels", []string{"volume", "ls", "--format", "{{.Name}}"}}
)

// kinds are all kinds, in the order in which they can be removed.
func kinds() []kind { return []kind{containerKind, networkKind, volumeKind} }

// list returns the names of the resources with a label, or of all if the label is empty. It takes
// one label, because podman 4.3 lists the volumes that have any of several.
func (e *Engine) list(ctx context.Context, k kind, label string) ([]string, error) {
	args := k.list
	if label != "" {
		args = slices.Concat(args, []string{"--filter", "label=" + label})
	}
	names, err := e.run(ctx, args...)
	return strings.Fields(names), err
}

// ownerOf returns the process that has made something, empty if that is not known.
func (e *Engine) ownerOf(ctx context.Context, k kind, name string) (string, error) {
	made, err := e.run(ctx, k.name, "inspect", "--format", `{{index `+k.labels+` "`+labelOwner+`"}}`, name)
	return made, err
}

// remove removes a resource of a kind. A missing one is no error.
func (e *Engine) remove(ctx context.Context, k kind, name string) error {
	if k.name == containerKind.name {
		return e.removeContainer(ctx, name)
	}
	_, err := e.run(ctx, k.name, "rm", "-f", name)
	if says(err, "no such", "not found") {
		return nil
	}
	return err
}

// Sweep removes the containers, networks, volumes, mounts and folders of every store whose evalrun
// is gone. It returns how many containers it removed.
func (e *Engine) Sweep(ctx context.Context) (removed int, err error) {
	for _, k := range kinds() {
		names, listed := e.list(ctx, k, labelOwner)
		if listed != nil {
			return removed, errors.Join(err, listed)
		}
		for _, name := range names {
			made, gone := e.ownerOf(ctx, k, name)
			if gone != nil || !isGone(made) {
				continue // somebody has removed it meanwhile
			}
			err = errors.Join(err, e.remove(ctx, k, name))
			if k.name == containerKind.name {
				removed++
			}
		}
	}
	return removed, errors.Join(err, e.sweepVolumes(ctx), sweepMounts(), sweepFolders())
}

// sweepVolumes removes the volumes that have a name of ours and no label. An engine whose evalrun
// was killed goes on with its work, and makes a volume again that has been removed meanwhile.
func (e *Engine) sweepVolumes(ctx context.Context) error {
	names, err := e.list(ctx, volumeKind, "")
	for _, name := range names {
		if !ownVolume.MatchString(name) {
			continue
		}
		if made, failed := e.ownerOf(ctx, volumeKind, name); failed != nil || made != "" {
			continue
		}
		if _, failed := e.run(ctx, "volume", "rm", name); !says(failed, "no such", "not found", "in use", "being used") {
			err = errors.Join(err, failed)
		}
	}
	return err
}

var ownVolume = regexp.MustCompile(`^evalrun-[0-9a-f]{16}_`)

const folderPrefix = "evalrun-of-"

// newFolder makes a folder for sockets and files of this process. It is not in the store, since the
// paths of sockets must be short.
func newFolder() (string, error) {
	_, process, _ := strings.Cut(owner(os.Getpid()), ":") // without the boot, which is long
	return os.MkdirTemp("", folderPrefix+strings.ReplaceAll(process, ":", "-")+"-")
}

// sweepFolders removes the folders whose evalrun is gone. The containers and mounts that used them
// are gone by then.
func sweepFolders() error {
	boot, _, _ := strings.Cut(owner(os.Getpid()), ":")
	folders, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*-*-*-*"))
	for _, folder := range folders {
		process := strings.Split(strings.TrimPrefix(filepath.Base(folder), folderPrefix), "-")
		if isGone(strings.Join(append([]string{boot}, process[:len(process)-1]...), ":")) {
			err = errors.Join(err, os.RemoveAll(folder))
		}
	}
	return err
}
