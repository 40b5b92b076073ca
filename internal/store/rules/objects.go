package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/blob"
	"github.com/evalrun/evalrun/internal/store"
)

// The blocks that are stored together are one object, in the folder of the store's id, so that stores may share a
// place. An object gets a new name each time: nobody who removes one can meet what another process has just stored.
// The rows say where blocks are; an object that no row knows is of a suspension that came to nothing.

// placed is a block, or where it is.
type placed struct {
	store.Block
	object     string
	at, stored int64
}

// place is that of a URL.
func (d *db) place(url string) (blob.Store, error) {
	if there, ok := d.places.Load(url); ok {
		return there.(blob.Store), nil
	}
	opened, err := blob.Open(url)
	if err != nil {
		return nil, fmt.Errorf("the files of suspended rollouts (EVALRUN_BLOBS): %w", err)
	}
	there, _ := d.places.LoadOrStore(url, opened)
	return there.(blob.Store), nil
}

// putObject stores blocks in the place for them, and returns the URL of the object; empty if the database is the
// place.
func (s blocks) putObject(ctx context.Context, all []store.Block) (url string, err error) {
	if s.db.blobs == "" || len(all) == 0 {
		return "", nil
	}
	to, err := s.db.place(s.db.blobs)
	if err != nil {
		return "", err
	}
	data := make([][]byte, len(all))
	for i, b := range all {
		data[i] = b.Data
	}
	name := s.db.ID() + "/" + uuid.NewString()
	if err := to.Put(ctx, name, bytes.Join(data, nil)); err != nil {
		return "", unreachable(ctx, fmt.Errorf("store files of a suspended rollout: %w", err))
	}
	return s.db.blobs + "/" + name, nil
}

// together is how many of some blocks, at least one, are side by side in one object.
func together(some []placed) int {
	n := 1
	for n < len(some) && some[n].object != "" && some[n].object == some[0].object &&
		some[n].at == some[n-1].at+some[n-1].stored {
		n++
	}
	return n
}

// fetch gets blocks that are side by side outside of the database.
func (s blocks) fetch(ctx context.Context, some []placed) error {
	b, last := some[0], some[len(some)-1]
	if b.object == "" {
		return nil
	}
	base, name, ok := splitObject(b.object)
	if !ok {
		return fmt.Errorf("the block %s is said to be in %q, which is no object of a store", b.Sum, b.object)
	}
	from, err := s.db.place(base)
	if err != nil {
		return err
	}
	data, err := from.Get(ctx, name, b.at, last.at+last.stored-b.at)
	if err != nil {
		err = fmt.Errorf("get files of a suspended rollout: %w", err)
		if !errors.Is(err, blob.ErrMissing) {
			err = unreachable(ctx, err)
		}
		return err
	}
	for i := range some {
		some[i].Data, data = data[:some[i].stored], data[some[i].stored:]
	}
	return nil
}

// placeError says that a place for objects does not work. It is a part of the store: no rollout is to blame.
type placeError struct{ error }

// Unwrap returns what has failed.
func (e *placeError) Unwrap() error { return e.error }

// Broken implements the method that [store.IsBroken] asks for.
func (e *placeError) Broken() bool { return true }

// unreachable makes a placeError of an error, unless a call was ended from here.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return &placeError{err}
}

// splitObject divides the URL of an object into that of its place and its name: the store's id, and its own.
func splitObject(url string) (base, name string, ok bool) {
	own := strings.LastIndexByte(url, '/')
	if own < 0 {
		return "", "", false
	}
	of := strings.LastIndexByte(url[:own], '/')
	if of < 0 {
		return "", "", false
	}
	return url[:of], url[of+1:], true
}

// objectsAtOnce is how many objects one query looks for.
const objectsAtOnce = 500

// pruneObjects removes the objects of the place that no row knows, and which were stored before a time.
func (s blocks) pruneObjects(ctx context.Context, before time.Time) error {
	if s.db.blobs == "" {
		return nil
	}
	in, err := s.db.place(s.db.blobs)
	if err != nil {
		return err
	}
	var some []string
	prune := func() error {
		unknown, err := s.unknown(ctx, some)
		for _, url := range unknown {
			if err == nil {
				err = in.Delete(ctx, strings.TrimPrefix(url, s.db.blobs+"/"))
			}
		}
		some = nil
		return err
	}
	err = in.List(ctx, s.db.ID()+"/", before, func(name string) error {
		if some = append(some, s.db.blobs+"/"+name); len(some) < objectsAtOnce {
			return nil
		}
		return prune()
	})
	if err == nil {
		err = prune()
	}
	if err != nil {
		return fmt.Errorf("remove files of suspended rollouts: %w", err)
	}
	return nil
}

// unknown returns those of the objects of which no row knows.
func (s blocks) unknown(ctx context.Context, urls []string) (out []string, err error) {
	stmt, err := s.db.query(ctx,
		"SELECT j.value FROM json_each(?) j WHERE NOT EXISTS (SELECT 1 FROM blocks b WHERE b.object = j.value AND b.object <> '')")
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(ctx, list(urls))
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r scanner) error {
		var url string
		err := r.Scan(&url)
		out = append(out, url)
		return err
	})
	return out, s.db.describe(err, "look for files of suspended rollouts")
}

// CheckBlobs stores an object in the place for blocks, reads it and removes it. It returns the name of the place.
func (s blocks) CheckBlobs(ctx context.Context) (name string, err error) {
	if s.db.blobs == "" {
		return "the store itself", nil
	}
	in, err := s.db.place(s.db.blobs)
	if err != nil {
		return "", err
	}
	object, probe := s.db.ID()+"/probe-"+uuid.NewString(), []byte("evalrun doctor")
	if err := in.Put(ctx, object, probe); err != nil {
		return "", err
	}
	got, err := in.Get(ctx, object, 0, int64(len(probe)))
	if err == nil && !bytes.Equal(got, probe) {
		err = fmt.Errorf("%s gives back something else than what was stored", s.db.blobs)
	}
	if err == nil {
		err = in.List(ctx, s.db.ID()+"/", time.Unix(0, 0), func(string) error { return nil })
	}
	if err == nil {
		err = in.Delete(ctx, object)
	}
	return s.db.blobs, err
}
