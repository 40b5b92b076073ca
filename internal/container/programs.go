package container

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// The labels of the volumes of a daemon with programs of this machine. They are a cache: many containers have
// one at the same time, and it stays when nobody has it. A volume is filled under a name that nobody else uses. When
// it is whole, an empty volume says so, whose name is made of the content alone: the daemon makes one of a name, however
// many ask for it, and so tells all of them the same.
const (
	labelPrograms = "dev.evalrun.programs" // of both: the digest of the content
	labelWhole    = "dev.evalrun.whole"    // of the empty one: the name of the other
	labelFiller   = "dev.evalrun.filler"   // of the other: the process that fills it, as in labelOwner
)

// programsFolder is where containers have such a volume.
var programsFolder = path.Dir(sandbox.InsideExecutable)

// isProgram reports whether a bind is of a program, so that containers have it in a volume, which they cannot change.
func isProgram(b sandbox.Bind) bool {
	return strings.HasPrefix(path.Clean(b.Inside), programsFolder+"/")
}

// programs finds the volume with programs of this machine, or fills one. image is any image of the daemon.
func (d *Daemon) programs(ctx context.Context, image string, all []sandbox.Bind) (docker.Mount, error) {
	d.filling.Lock()
	defer d.filling.Unlock()
	digest, err := contents.digest(all)
	if err != nil {
		return docker.Mount{}, err
	}
	there, err := d.ListVolumes(ctx, labelPrograms+"="+digest)
	if err != nil {
		return docker.Mount{}, fmt.Errorf("list the volumes of the Docker daemon: %w", err)
	}
	mark := "evalrun-programs-" + digest[:16]
	name := there[mark][labelWhole]
	if _, ok := there[name]; !ok {
		if name != "" { // somebody has removed it
			err = d.RemoveVolume(ctx, mark)
		}
		if err == nil {
			name, err = d.newPrograms(ctx, image, mark, digest, all)
		}
		if err != nil {
			return docker.Mount{}, fmt.Errorf("make a volume of the programs for containers: %w", err)
		}
	}
	m := docker.Mount{Type: "volume", Source: name, Target: programsFolder, ReadOnly: true}
	m.VolumeOptions.NoCopy, m.VolumeOptions.Labels = true, map[string]string{labelPrograms: digest}
	return m, nil
}

// newPrograms fills a volume, and returns its name, or that of another process that was faster.
func (d *Daemon) newPrograms(ctx context.Context, image, mark, digest string, all []sandbox.Bind) (string, error) {
	name := mark + "-" + strings.ToLower(rand.Text())
	err := d.fill(ctx, image, name, digest, all)
	if err == nil {
		var labels map[string]string
		labels, err = d.CreateVolume(ctx, mark, map[string]string{labelPrograms: digest, labelWhole: name})
		if whole := labels[labelWhole]; err == nil && whole != name {
			return whole, d.RemoveVolume(ctx, name)
		}
	}
	if err != nil {
		ctx, cancel := withinTime() // the other may be over
		defer cancel()
		return "", errors.Join(err, d.RemoveVolume(ctx, name))
	}
	return name, nil
}

// fill makes a volume and fills it, by means of a container that never runs.
func (d *Daemon) fill(ctx context.Context, image, name, digest string, all []sandbox.Bind) error {
	owned := ownLabels(name)
	_, err := d.CreateVolume(ctx, name, map[string]string{labelPrograms: digest, labelFiller: owned[labelOwner], labelMachine: machine()})
	if err != nil {
		return err
	}
	spec := docker.Spec{Image: image, Entrypoint: []string{"/bin/sh"}, Labels: owned}
	spec.HostConfig.NetworkMode = NetworkNone
	m := docker.Mount{Type: "volume", Source: name, Target: programsFolder}
	m.VolumeOptions.NoCopy = true
	spec.HostConfig.Mounts = []docker.Mount{m}
	id, err := d.Create(ctx, name, spec)
	if err != nil {
		return err
	}
	// podman finds the volume by the folder alone.
	err = d.putTrees(ctx, id, programsFolder, func(a *tar.Writer) error { return addPrograms(a, all) })
	ended, cancel := withinTime()
	defer cancel()
	return errors.Join(err, d.Remove(ended, id))
}

func addPrograms(a *tar.Writer, all []sandbox.Bind) error {
	for _, b := range all {
		if err := docker.AddTree(a, b.Host, strings.TrimPrefix(path.Clean(b.Inside), programsFolder+"/"), docker.Root); err != nil {
			return fmt.Errorf("%s: %w", b.Host, err)
		}
	}
	return nil
}

// sweepPrograms removes the volumes that a killed process of this machine has begun to fill.
func (d *Daemon) sweepPrograms(ctx context.Context) error {
	all, err := d.ListVolumes(ctx, labelPrograms)
	if err != nil {
		return fmt.Errorf("list the volumes of the Docker daemon: %w", err)
	}
	whole := map[string]bool{}
	for _, labels := range all {
		whole[labels[labelWhole]] = true
	}
	for name, labels := range all {
		if !whole[name] && labels[labelMachine] == machine() && isGone(labels[labelFiller]) {
			err = errors.Join(err, d.RemoveVolume(ctx, name))
		}
	}
	return err
}

// CollectPrograms removes the volumes with programs that this machine has filled and no container has. Those that were
// made less than older ago stay; 0 leaves none. It returns how many go. What is needed again is sent again.
func (d *Daemon) CollectPrograms(ctx context.Context, older time.Duration, dryRun bool) (removed int, err error) {
	all, err := d.ListVolumes(ctx, labelPrograms)
	if err != nil {
		return 0, err
	}
	unused, err := d.UnusedVolumes(ctx, labelPrograms, labelMachine+"="+machine())
	if err != nil {
		return 0, err
	}
	for mark, labels := range all {
		name := labels[labelWhole]
		if made, ok := unused[name]; !ok || older > 0 && time.Since(made) < older {
			continue
		}
		if removed++; !dryRun { // nobody finds the one without its mark
			err = errors.Join(err, d.RemoveVolume(ctx, mark), d.RemoveVolume(ctx, name))
		}
	}
	return removed, err
}

// contents knows the digests of programs of this machine, whose files are read again when one has changed.
var contents known

type known struct {
	mu sync.Mutex
	by map[string]string // by what the file system tells of the files
}

func (k *known) digest(all []sandbox.Bind) (string, error) {
	told := sha256.New()
	for _, b := range all {
		real, err := filepath.EvalSymlinks(b.Host)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(told, "%q\n", b.Inside) // a hash takes everything
		err = filepath.WalkDir(real, func(file string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err == nil {
				_, _ = fmt.Fprintf(told, "%q %v %d %v %s\n", file, info.Mode(), info.Size(), info.ModTime().UnixNano(), changeOf(info))
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	key := string(told.Sum(nil))
	k.mu.Lock()
	defer k.mu.Unlock()
	if digest := k.by[key]; digest != "" {
		return digest, nil
	}
	content := sha256.New()
	a := tar.NewWriter(content)
	if err := errors.Join(addPrograms(a, all), a.Close()); err != nil {
		return "", err
	}
	if k.by == nil {
		k.by = map[string]string{}
	}
	k.by[key] = hex.EncodeToString(content.Sum(nil))
	return k.by[key], nil
}
