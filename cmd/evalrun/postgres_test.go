package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/backend"
	"github.com/evalrun/evalrun/internal/testenv"
)

// TestScriptsInPostgres runs some scripts with a store in PostgreSQL: all that is about what a store
// does, and needs no other option.
func TestScriptsInPostgres(t *testing.T) {
	server, err := url.Parse(testenv.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	scripts := []string{"testdata/postgres/postgres.txt", "testdata/postgres/empty.txt"}
	for _, name := range []string{
		"approve", "cancel", "cancel-killed", "deliver", "epochs", "events", "executor", "executor-once", "interrupt", "jobs",
		"jobs-server", "retry", "scored-elsewhere", "scoring", "serve", "shared", "siblings", "suspend", "suspend-timeout",
	} {
		scripts = append(scripts, filepath.Join("testdata", "script", name+".txt"))
	}
	scripts = append(scripts, "testdata/postgres/portable.txt", "testdata/postgres/pack.txt")
	runScripts(t, scripts, func(env *testscript.Env) error {
		u := *server
		q := u.Query()
		q.Set("search_path", fmt.Sprintf("s%x", sha256.Sum256([]byte(env.WorkDir)))[:20])
		u.RawQuery = q.Encode()
		env.Setenv("EVALRUN_STORE", u.String())
		s, err := backend.Open(u.String(), store.Options{Files: filepath.Join(env.WorkDir, "state", "evalrun", "stores")})
		if err != nil {
			return err
		}
		u.User = url.UserPassword(u.User.Username(), "correct-horse-battery") // the server asks for none
		// The value of a variable that is named like a secret would be hidden anyway.
		env.Setenv("SAME_STORE", u.String())
		q.Set("search_path", "none")
		u.RawQuery = q.Encode()
		env.Setenv("EMPTY_STORE", u.String())
		// The scripts look for files of runs where a store in a folder has them.
		return errors.Join(os.Symlink(s.Dir(), filepath.Join(env.WorkDir, ".evalrun")), s.Close())
	})
}
