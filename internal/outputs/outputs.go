// Package outputs keeps what agents have put out, so that a rollout that would ask the same of the
// same program need not run it again. It knows files, sums and JSON, and nothing of agents or stores.
package outputs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
)

// Question is everything on which the output of an agent depends. Two rollouts of one run never have
// the same question.
type Question struct {
	// Session is the session of the command that keeps the output; empty if it is kept for all.
	Session string `json:"session,omitempty"`
	// Evaluation and Epoch tell apart rollouts that would else be the same, each of which has to be run:
	// they are there to show how much the outputs of an agent differ.
	Evaluation string          `json:"evaluation"`
	Epoch      int             `json:"epoch"`
	Input      json.RawMessage `json:"input"`
	// Agent is the configuration of the agent, Variables the values that it names, and Program the sum of
	// its program's files.
	Agent     json.RawMessage   `json:"agent"`
	Variables map[string]string `json:"variables,omitempty"`
	Program   string            `json:"program,omitempty"`
	// Files is the sum of the files that the agent sends with the input.
	Files string `json:"files,omitempty"`
	// Functions are how functions of the agent are played.
	Functions json.RawMessage `json:"functions,omitempty"`
}

// key is the name of the output under which it is kept. Nothing of the question can be read from it.
func (q Question) key() (string, error) {
	data, err := json.Marshal(struct {
		Version int `json:"v"`
		Question
	}{1, q})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}

// Entry is the output of a rollout that was run, with the files that it has left.
type Entry struct {
	RunID     string          `json:"runId"`
	RolloutID string          `json:"rolloutId"`
	Time      time.Time       `json:"time"`
	WorkingMs int64           `json:"workingMs"`
	Output    json.RawMessage `json:"output"`
	// Info is what else was reported.
	Info  json.RawMessage `json:"info,omitempty"`
	Files []File          `json:"files,omitempty"`
}

// File is a file of an entry.
type File struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// Cache is a folder of entries.
type Cache struct{ dir string }

// New returns the cache in a folder, which need not exist.
func New(dir string) *Cache { return &Cache{dir} }

const (
	fileEntry   = "entry.json"
	folderFiles = "files"
)

func (c *Cache) folder(q Question) (string, error) {
	key, err := q.key()
	return filepath.Join(c.dir, key[:2], key[2:]), err
}

// Get returns the entry of a question, and copies its files into a folder. It is nil if there is none
// that is whole.
func (c *Cache) Get(q Question, into string) (*Entry, error) {
	dir, err := c.folder(q)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, fileEntry))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var e Entry
	if json.Unmarshal(data, &e) != nil || !json.Valid(e.Output) {
		return nil, nil
	}
	for i, f := range e.Files {
		if !filepath.IsLocal(f.Name) {
			return nil, forget(into, e.Files[:i])
		}
		sum, err := copyFile(filepath.Join(dir, folderFiles, f.Name), filepath.Join(into, f.Name))
		if err == nil && sum == f.SHA256 {
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, errors.Join(err, forget(into, e.Files[:i+1]))
	}
	return &e, nil
}

// forget removes the files of an entry that is not whole.
func forget(dir string, files []File) (err error) {
	for _, f := range files {
		if e := os.Remove(filepath.Join(dir, f.Name)); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// Put keeps an entry, whose files are in a folder. One that is there stays unless it is damaged.
func (c *Cache) Put(q Question, e Entry, from string) (err error) {
	dir, err := c.folder(q)
	if err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(parent, "new-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	for _, f := range e.Files {
		if _, err := copyFile(filepath.Join(from, f.Name), filepath.Join(tmp, folderFiles, f.Name)); err != nil {
			return err
		}
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	err = durable.WriteFile(filepath.Join(tmp, fileEntry), 0o600, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	if os.Rename(tmp, dir) == nil {
		return nil
	}
	// One is there, which was damaged, or another process was faster with the same.
	return errors.Join(os.RemoveAll(dir), os.Rename(tmp, dir))
}

// copyFile copies a file, and returns its sum.
func copyFile(from, to string) (sum string, err error) {
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return "", err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, h), in)
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, out.Close())
}
