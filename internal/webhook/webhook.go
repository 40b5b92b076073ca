// Package webhook makes the URLs by which a job answers the trigger that waits for it, and finds
// the trigger of a URL. It knows tokens and the key of a store. It neither serves nor calls
// anything.
//
// The token of a trigger is derived from the trigger's id by HMAC-SHA256 under a random key of the
// store. So nothing is stored for it, not even a hash: a process that starts a job again after a
// crash gives it the same URL, which keeps a repeated idempotent request equal to the first, and a
// copy of the database opens no URL. Anyone who reads the key's file can make all of them. Without
// the file all URLs that were given out are void.
package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/redact"
)

// Path is the path at which a server answers. A token follows, and "/fail" may follow that.
const Path = "/v1/hooks/"

// keyFile is the file in a store's folder that holds its key.
const keyFile = "webhook.key"

// Key is the key of a store's tokens.
type Key [sha256.Size]byte

// LoadKey reads the key of the store in a folder, and makes it first if there is none. Several
// processes may do so at once.
func LoadKey(storeDir string) (Key, error) {
	path := filepath.Join(storeDir, keyFile)
	key, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	lock, err := durable.Lock(path+".lock", 0o600)
	if err != nil {
		return key, err
	}
	defer func() { _ = lock.Close() }()
	if key, err = readKey(path); !errors.Is(err, fs.ErrNotExist) {
		return key, err // another process was first
	}
	rand.Read(key[:])
	err = durable.WriteFile(path, 0o600, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, hex.EncodeToString(key[:]))
		return err
	})
	return key, err
}

func readKey(path string) (key Key, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return key, err
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != len(key) {
		return key, fmt.Errorf("%s is damaged: expected %d hexadecimal digits; without the file evalrun makes another key, and the webhook URLs that jobs have are void", path, 2*len(key))
	}
	copy(key[:], raw)
	return key, nil
}

// URL returns the webhook of a trigger at a server, whose public URL is given without a path of
// ours.
func (k Key) URL(public, triggerID string) (string, error) {
	token, err := k.Token(triggerID)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(public, "/") + Path + token, nil
}

// Token is the secret of a trigger's webhook. It begins with redact.WebhookPrefix.
func (k Key) Token(triggerID string) (string, error) {
	id, err := uuid.Parse(triggerID)
	if err != nil {
		return "", fmt.Errorf("expected a UUID as the id of a trigger, got %q", triggerID)
	}
	return redact.WebhookPrefix + base64.RawURLEncoding.EncodeToString(append(id[:], k.sign(id)...)), nil
}

// Trigger returns the id of the trigger that a token is for; ok is false for every other text. The
// time does not depend on how much of a token is right.
func (k Key) Trigger(token string) (triggerID string, ok bool) {
	text, ok := strings.CutPrefix(token, redact.WebhookPrefix)
	raw := make([]byte, len(uuid.UUID{})+sha256.Size)
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(text)
	ok = ok && err == nil && len(decoded) == len(raw) && !strings.ContainsAny(text, "\r\n") // base64 skips line ends
	copy(raw, decoded)
	id := uuid.UUID(raw[:len(uuid.UUID{})])
	if !hmac.Equal(raw[len(id):], k.sign(id)) || !ok {
		return "", false
	}
	return id.String(), true
}

// sign returns the part of a token that nobody can guess.
func (k Key) sign(id uuid.UUID) []byte {
	mac := hmac.New(sha256.New, k[:])
	mac.Write([]byte("evalrun webhook of a trigger\x00"))
	mac.Write(id[:])
	return mac.Sum(nil)
}
