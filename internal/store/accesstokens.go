package store

import (
	"context"
	"errors"
	"time"
)

// AccessTokens keeps the tokens by which callers of the service show who they are. It never has the
// tokens themselves.
type AccessTokens interface {
	// AddAccessToken records a token before anybody is given it, and returns it with its time. The
	// error is ErrExists if there is one with the id.
	AddAccessToken(ctx context.Context, t AccessToken) (AccessToken, error)
	// AccessToken returns a token by its id, or ErrNotFound.
	AccessToken(ctx context.Context, id string) (AccessToken, error)
	// AccessTokens returns all tokens, the oldest first.
	AccessTokens(ctx context.Context) ([]AccessToken, error)
	// RevokeAccessToken forgets a token, which nobody can use from then on; ErrNotFound if there is
	// none.
	RevokeAccessToken(ctx context.Context, id string) error
}

// ErrExists means that there is something with the id already.
var ErrExists = errors.New("it exists already")

// AccessToken describes a token.
type AccessToken struct {
	// ID is the part of the token that is no secret.
	ID string
	// Name says for people what the token is for.
	Name string
	// Digest is that of the secret part.
	Digest []byte
	// Scopes say what its bearer may do.
	Scopes []string
	// CreatedAt is set by AddAccessToken.
	CreatedAt time.Time
	// ExpiresAt is when nobody can use it any more; zero means never.
	ExpiresAt time.Time
}
