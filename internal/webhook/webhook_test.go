package webhook

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/redact"
)

// A token is for its trigger, in every process of the store, and nothing else is a token.
func TestToken(t *testing.T) {
	dir := t.TempDir()
	key, err := LoadKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadKey(dir)
	if err != nil || again != key {
		t.Fatalf("the key was not kept: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, keyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	id, other := uuid.NewString(), uuid.NewString()
	token, err := key.Token(id)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := again.Trigger(token); !ok || got != id {
		t.Fatalf("got %q, %v", got, ok)
	}
	foreign, _ := Key{}.Token(id)
	mixed, _ := key.Token(other)
	for _, wrong := range []string{
		"", redact.WebhookPrefix, token[:len(token)-1], token + "A", strings.TrimPrefix(token, redact.WebhookPrefix), foreign, id, " " + token,
		token[:30] + mixed[30:],                        // the id of one trigger with the rest of another's
		token[:len(token)-1] + flip(token),             // one bit less
		strings.ToUpper(token[:1]) + token[1:],         // another prefix
		token + "\n", token[:40] + "\r\n" + token[40:], // line breaks, which base64 skips
	} {
		if got, ok := key.Trigger(wrong); ok {
			t.Errorf("%q is taken for the token of %s", wrong, got)
		}
	}
}

// flip returns another last character.
func flip(token string) string {
	if token[len(token)-1] == 'A' {
		return "B"
	}
	return "A"
}

func TestProcessesThatMakeTheKeyAtOnceHaveOne(t *testing.T) {
	dir := t.TempDir()
	var work sync.WaitGroup
	keys := make([]Key, 20)
	for i := range keys {
		work.Go(func() {
			var err error
			if keys[i], err = LoadKey(dir); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	for _, k := range keys {
		if k != keys[0] || k == (Key{}) {
			t.Fatal("the keys differ, or are empty")
		}
	}
}

func TestADamagedKeyIsSaid(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, keyFile), []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKey(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("got %v", err)
	}
}
