// Package blob keeps objects outside of a database: in a folder, which machines may share, or in a bucket of
// S3. It knows names and bytes, and nothing of what they mean.
package blob

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// Store is a place for objects. An object never changes: nobody puts another one under its name.
type Store interface {
	// Put stores an object, which is durable when it returns.
	Put(ctx context.Context, name string, data []byte) error
	// Get returns a part of an object; ErrMissing if there is none of this name, or it is shorter.
	Get(ctx context.Context, name string, at, size int64) ([]byte, error)
	// List calls f with the name of every object below a folder (FOLDER/) that was put before a time.
	List(ctx context.Context, folder string, before time.Time, f func(name string) error) error
	// Delete removes an object. One that is not there is no error.
	Delete(ctx context.Context, name string) error
}

// ErrMissing says that an object is not there, or is not as long as it was.
var ErrMissing = errors.New("there is no such object")

// Open returns the place that a URL names: file:///FOLDER or s3://BUCKET/PREFIX. It reads nothing there.
func Open(place string) (Store, error) {
	u, err := url.Parse(place)
	if err != nil || u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("expected file:///FOLDER or s3://BUCKET/PREFIX") // without it: it may have a secret
	}
	switch {
	case u.Scheme == "file" && (u.Host == "" || u.Host == "localhost") && filepath.IsAbs(u.Path):
		return &folder{dir: filepath.Clean(u.Path)}, nil
	case u.Scheme == "s3" && u.Host != "" && !strings.Contains(u.Path, "//"):
		return newBucket(u.Host, strings.Trim(u.Path, "/"))
	}
	return nil, fmt.Errorf("expected file:///FOLDER or s3://BUCKET/PREFIX")
}
