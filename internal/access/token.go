package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// tokenPrefix begins every token, so that people and scanners for secrets recognize it.
const tokenPrefix = "evr_"

// idLength is the length of the part of a token that is not secret.
const idLength = 8

// ErrInvalid means that the token was never issued, or that it was revoked or has expired.
var ErrInvalid = errors.New("the token is not valid")

// New makes a token and records it in the store, which never learns its secret part: the returned
// token cannot be had again. A zero time means that it never expires.
func New(ctx context.Context, st store.AccessTokens, name string, scopes []Scope,
	expires time.Time) (token string, t store.AccessToken, err error) {
	for {
		id, secret := strings.ToLower(rand.Text()[:idLength]), strings.ToLower(rand.Text()+rand.Text()[:6])
		sum := sha256.Sum256([]byte(secret))
		t = store.AccessToken{ID: id, Name: name, Digest: sum[:], ExpiresAt: expires}
		for _, s := range scopes {
			t.Scopes = append(t.Scopes, string(s))
		}
		t, err = st.AddAccessToken(ctx, t)
		if !errors.Is(err, store.ErrExists) {
			return tokenPrefix + id + "_" + secret, t, err
		}
	}
}

// Check returns the owner of a token; ErrInvalid if there is none.
func Check(ctx context.Context, st store.AccessTokens, token string, now time.Time) (Identity, error) {
	id, secret, ok := strings.Cut(strings.TrimPrefix(token, tokenPrefix), "_")
	if !ok || !strings.HasPrefix(token, tokenPrefix) || len(id) != idLength {
		return Identity{}, ErrInvalid
	}
	t, err := st.AccessToken(ctx, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Identity{}, err
	}
	known := err == nil && len(t.Digest) == sha256.Size
	if !known {
		// The digests are compared all the same: the time must not tell which ids exist.
		t.Digest = make([]byte, sha256.Size)
	}
	sum := sha256.Sum256([]byte(secret))
	if same := subtle.ConstantTimeCompare(sum[:], t.Digest) == 1; !same || !known || expired(t, now) {
		return Identity{}, ErrInvalid
	}
	i := Identity{ID: t.ID, Name: t.Name}
	for _, s := range t.Scopes {
		i.Scopes = append(i.Scopes, Scope(s))
	}
	return i, nil
}

// Recheck checks whether the token with an id, which was valid, still is; ErrInvalid if not.
func Recheck(ctx context.Context, st store.AccessTokens, id string, now time.Time) error {
	t, err := st.AccessToken(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && expired(t, now) {
		return ErrInvalid
	}
	return err
}

func expired(t store.AccessToken, now time.Time) bool {
	return !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt)
}
