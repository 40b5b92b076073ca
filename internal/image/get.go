package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

// made is the record of an answered request: which image was made for it.
type made struct {
	Digest string    `json:"digest"`
	Of     string    `json:"of"`
	At     time.Time `json:"at"`
	// Bases are the images on which it was built. Places are the storages that have had them. The
	// image is out of date when one of their names belongs to another image there.
	Bases  []base   `json:"bases,omitempty"`
	Places []string `json:"places,omitempty"`
}

// Get returns an image. If nobody has made it, Get makes it by a pull or a build. progress is
// called with a line for each step that takes time; it may be nil. If the image cannot be made
// here, the error is a [fault.Fault] of category image or not-runnable. The caller releases the
// image.
func (im *Images) Get(ctx context.Context, s Spec, progress func(string)) (*Image, error) {
	if progress == nil {
		progress = func(string) {}
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	key, err := s.key()
	if err != nil {
		return nil, fault.Newf(fault.Image, "the build context of %s cannot be read: %v", s, err)
	}
	begun, since := time.Now(), time.Time{}
	if s.Rebuild {
		since = begun
	}
	if i, err := im.there(key, since); i != nil || err != nil {
		return i, err
	}
	if failed, ok := im.failed.Load(s.For + key); ok {
		return nil, failed.(error)
	}
	lock, err := im.dir.lock(ctx, func() {
		building, _ := os.ReadFile(im.dir.path("building")) // it may have ended meanwhile
		progress(fmt.Sprintf("%s waits for the build of %s", s, cmp.Or(string(building), "another image")))
	})
	if err != nil {
		return nil, err
	}
	defer lock.Close()                                 // the lock ends with it, whatever it says
	if failed, ok := im.failed.Load(s.For + key); ok { // while this one waited
		return nil, failed.(error)
	}
	if i, err := im.there(key, since); i != nil || err != nil {
		return i, err
	}
	if s.Rebuild { // if that fails, nobody gets the old image
		if err := os.RemoveAll(im.dir.path("keys", key+".json")); err != nil {
			return nil, err
		}
	}
	if err := im.make(ctx, lock, s, key, progress); err != nil {
		if ctx.Err() != nil { // it was broken off, which says nothing about the image
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, syscall.ENOSPC) { // for files that are written beside the build
			err = fault.Newf(fault.Image, "the image of %s could not be kept: %v%s", s, err, im.dir.ifFull(err.Error()))
		}
		if f := (*fault.Fault)(nil); s.For != "" && errors.As(err, &f) {
			im.failed.Store(s.For+key, err)
		}
		return nil, err
	}
	i, err := im.there(key, since)
	if i == nil && err == nil {
		err = fault.Newf(fault.Internal, "the image of %s was made, and is not there", s)
	}
	if i != nil {
		i.Made = time.Since(begun)
	}
	return i, err
}

// Reopen returns the image with a digest, for a rollout that was started in it. It returns nil if
// the image is gone. The caller releases it.
func (im *Images) Reopen(digest string) (*Image, error) { return im.open(digest) }

// there opens the image that was made for a request. It returns nil if there is none, or if it is
// older than since or its base has changed.
func (im *Images) there(key string, since time.Time) (*Image, error) {
	var m made
	if err := readJSON(im.dir.path("keys", key+".json"), &m); err != nil ||
		m.Digest == "" || m.At.Before(since) || m.changed() {
		return nil, err
	}
	return im.open(m.Digest)
}

func (m *made) changed() bool {
	return len(m.Places) > 0 && storage{m.Places[0], m.Places[1:]}.changed(m.Bases)
}

// make makes an image under the lock of the folder.
func (im *Images) make(ctx context.Context, lock *os.File, s Spec, key string, progress func(string)) error {
	// Everything there was left by a killed process, because nobody else makes anything now.
	if err := errors.Join(removeAllIn(im.dir.path("tmp")),
		removeControlGroups(controlGroup(im.dir.path("storage")))); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(im.dir.path("tmp"), "")
	if err != nil {
		return err
	}
	defer func() {
		// If this fails, the next one does it.
		_ = errors.Join(os.RemoveAll(tmp), removeControlGroups(controlGroup(im.dir.path("storage"))))
	}()
	building := im.dir.path("building")
	if err := os.WriteFile(building, []byte(s.String()), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(building) }() // nobody reads it once the lock is free
	b, err := im.newBuilder(ctx, s, lock, tmp)
	if err != nil {
		return err
	}
	log, err := newBuildLog(im.dir.path("logs", key+".log"), progress)
	if err != nil {
		return err
	}
	defer log.close()
	if err := b.recover(ctx, log); err != nil {
		_, _ = fmt.Fprintf(log, "what is left of a build is removed with the whole cache: %v\n", err)
	}
	if err := im.dir.cleanStorage(); err != nil {
		return err
	}
	m, err := im.makeWith(ctx, b, s, tmp, log, progress)
	if err != nil {
		return failed(s, err, log, im.dir.ifFull)
	}
	if err := os.RemoveAll(tmp); err != nil { // before the image is found, because then nobody looks here
		return err
	}
	return im.dir.write(m, "keys", key+".json")
}

// makeWith makes an image within the limits of its specification. The time limit is for the build
// or the pull. It does not cover the copying here, which takes longer the busier the machine is.
func (im *Images) makeWith(ctx context.Context, b builder, s Spec,
	tmp string, log *buildLog, progress func(string)) (*made, error) {
	limited, stop := bounded(ctx, b.layersDir(), s.MaxBytes)
	m := &made{At: time.Now(), Places: b.places()}
	id, err := im.obtain(limited, b, s, m, tmp, log, progress)
	if err = cmp.Or(stop(), err); err != nil {
		return nil, err
	}
	if m.Digest, err = im.keep(ctx, b, id, tmp); err != nil {
		return nil, err
	}
	return m, nil
}

var errTooLong = errors.New("it took longer than build_timeout_sec")

// obtain gets an image into the builder's storage.
func (im *Images) obtain(ctx context.Context, b builder, s Spec, m *made,
	tmp string, log *buildLog, progress func(string)) (id string, err error) {
	if s.Reference != "" && !s.Rebuild {
		id, err := im.fetch(ctx, b, s, log, progress)
		if err == nil || s.Context == "" || ctx.Err() != nil || errors.Is(err, errTooLong) {
			m.Of, m.Bases = s.Reference, []base{{s.Reference, id}}
			return id, err
		}
		progress(fmt.Sprintf("%s is not to be had, so %s is built", s.Reference, s.dockerfile()))
	}
	dir, dockerfile := filepath.Join(tmp, "context"), filepath.Join(tmp, "Dockerfile")
	info, err := os.Stat(s.dockerfile())
	if err == nil {
		err = cmp.Or(s.stage(dir), copyFile(s.dockerfile(), dockerfile, info))
	}
	if err != nil {
		return "", err
	}
	if m.Of, err = filepath.Abs(s.dockerfile()); err != nil {
		return "", err
	}
	progress(fmt.Sprintf("%s is built with %s", s.dockerfile(), b))
	building, cancel := context.WithTimeoutCause(ctx, s.timeout(), errTooLong)
	defer cancel()
	if id, err = b.build(building, dir, dockerfile, log); err == nil {
		m.Bases, err = b.bases(dockerfile)
	}
	return id, err
}

// fetch finds an image by its name, or pulls it.
func (im *Images) fetch(ctx context.Context, b builder, s Spec, log io.Writer, progress func(string)) (string, error) {
	id, err := b.find(ctx, s.Reference)
	if id != "" || err != nil {
		return id, err
	}
	progress(fmt.Sprintf("%s is pulled with %s", s.Reference, b))
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout(), errTooLong)
	defer cancel()
	return b.pull(ctx, s.Reference, log)
}

// fullBelow is the free space, in bytes, below which a disk counts as full, because builders hide
// the reason.
const fullBelow = 64 << 20

// ifFull says what to do if something has failed because the disk is full.
func (d directory) ifFull(said string) string {
	if !strings.Contains(strings.ToLower(said), "no space left on device") && free(string(d)) >= fullBelow {
		return ""
	}
	return fmt.Sprintf("\nthe disk is full: free some of the disk of %s (evalrun images gc removes what nobody needs), or name a folder on another with EVALRUN_IMAGES",
		d)
}

// failed is the fault of an image that could not be made. ifShort says what to do if disk or memory are full.
func failed(s Spec, err error, log *buildLog, ifShort func(said string) string) error {
	if f := (*fault.Fault)(nil); errors.As(err, &f) {
		return err
	}
	if w := (*wrongPlatform)(nil); errors.As(err, &w) {
		return fault.Newf(fault.Image, "%s is an image for %s, and this machine runs %s", s, w.platform, platform())
	}
	what := "the image of " + s.String() + " could not be built"
	if s.Context == "" {
		what = "the image " + s.Reference + " is not on this machine, and could not be pulled"
	}
	if errors.Is(err, errTooLong) {
		err = fmt.Errorf("it took longer than build_timeout_sec, %s", s.timeout())
	}
	message := fmt.Sprintf("%s: %v", what, err)
	if tail := log.tail(); tail != "" {
		message += "\n" + tail
	}
	return fault.New(fault.Image, message+ifShort(message)+"\nthe whole log: "+log.path)
}
