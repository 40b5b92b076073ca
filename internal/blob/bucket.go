package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// bucket keeps objects in a bucket of S3, or of what speaks its protocol, by the four calls that this needs.
type bucket struct {
	client   *http.Client
	signer   *v4.Signer
	endpoint string // with the bucket, where it is part of the host
	path     string // of the bucket, where it is part of the path
	prefix   string
	name     string
	region   string
	keys     aws.Credentials
	pause    time.Duration // before the second try; it doubles
}

// How often a call is tried that may pass, and how long one try may take.
const (
	tries    = 6
	tryLimit = time.Minute
)

// newBucket takes keys, region and endpoint from the variables that AWS's own programs know.
func newBucket(name, prefix string) (*bucket, error) {
	b := &bucket{client: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 16,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, ResponseHeaderTimeout: tryLimit,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute}},
		signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }),
		prefix: prefix, name: "s3://" + strings.TrimSuffix(name+"/"+prefix, "/"), pause: 200 * time.Millisecond,
		region: cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), "us-east-1"),
		keys: aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
			SessionToken: os.Getenv("AWS_SESSION_TOKEN")}}
	if !b.keys.HasKeys() {
		return nil, fmt.Errorf("%s needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", b.name)
	}
	if own := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL")); own != "" {
		b.endpoint, b.path = strings.TrimRight(own, "/"), "/"+name
	} else if b.endpoint = "https://" + name + ".s3." + b.region + ".amazonaws.com"; strings.Contains(name, ".") {
		b.endpoint, b.path = "https://s3."+b.region+".amazonaws.com", "/"+name // a certificate has one level of names
	}
	if _, err := url.Parse(b.endpoint); err != nil {
		return nil, errors.New("AWS_ENDPOINT_URL is no URL")
	}
	return b, nil
}

// Put implements Store.
func (b *bucket) Put(ctx context.Context, name string, data []byte) error {
	// Two with one name are the same object: a first try may have been lost on its way back.
	_, err := b.call(ctx, http.MethodPut, b.key(name), nil, data, http.Header{"If-None-Match": {"*"}})
	var e *answerError
	if errors.As(err, &e) && e.status == http.StatusPreconditionFailed {
		return nil
	}
	return err
}

// Get implements Store.
func (b *bucket) Get(ctx context.Context, name string, at, size int64) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	data, err := b.call(ctx, http.MethodGet, b.key(name), nil, nil,
		http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", at, at+size-1)}})
	var e *answerError
	if errors.As(err, &e) && (e.code == "NoSuchKey" || e.status == http.StatusRequestedRangeNotSatisfiable) {
		return nil, fmt.Errorf("%s/%s: %w", b.name, name, ErrMissing)
	}
	if err == nil && int64(len(data)) != size {
		return nil, fmt.Errorf("%s/%s is cut: %w", b.name, name, ErrMissing)
	}
	return data, err
}

// List implements Store.
func (b *bucket) List(ctx context.Context, folder string, before time.Time, found func(name string) error) error {
	q := url.Values{"list-type": {"2"}, "prefix": {strings.TrimPrefix(b.key(folder), "/")}}
	for {
		data, err := b.call(ctx, http.MethodGet, "/", q, nil, nil)
		if err != nil {
			return err
		}
		var page struct {
			Contents []struct {
				Key          string
				LastModified time.Time
			}
			IsTruncated           bool
			NextContinuationToken string
		}
		if err := xml.Unmarshal(data, &page); err != nil {
			return fmt.Errorf("%s: what it says of its objects cannot be read: %w", b.name, err)
		}
		for _, o := range page.Contents {
			if o.LastModified.After(before) {
				continue
			}
			if err := found(strings.TrimPrefix(strings.TrimPrefix(o.Key, b.prefix), "/")); err != nil {
				return err
			}
		}
		if !page.IsTruncated || page.NextContinuationToken == "" {
			return nil
		}
		q.Set("continuation-token", page.NextContinuationToken)
	}
}

// Delete implements Store.
func (b *bucket) Delete(ctx context.Context, name string) error {
	_, err := b.call(ctx, http.MethodDelete, b.key(name), nil, nil, nil)
	var e *answerError
	if errors.As(err, &e) && e.code == "NoSuchKey" {
		return nil
	}
	return err
}

func (b *bucket) key(name string) string {
	return "/" + strings.TrimPrefix(b.prefix+"/"+name, "/")
}

// escape escapes a path as S3 wants it to be signed: all but letters, digits and a few signs.
func escape(path string) string {
	var out strings.Builder
	for _, c := range []byte(path) {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~/", c) >= 0 {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

// answerError is an answer that is none of success.
type answerError struct {
	place, code string
	status      int
}

// Error says what can be done about it.
func (e *answerError) Error() string {
	text := fmt.Sprintf("%s answers %d %s", e.place, e.status, cmp.Or(e.code, http.StatusText(e.status)))
	switch {
	case e.code == "NoSuchBucket":
		return text + ": make the bucket, or name another one"
	case e.code == "RequestTimeTooSkewed":
		return text + ": set this machine's clock"
	case e.status == http.StatusForbidden, e.status == http.StatusUnauthorized:
		return text + ": its keys (AWS_ACCESS_KEY_ID) are wrong, or may not read, write and list there"
	case e.status == http.StatusMovedPermanently, e.code == "AuthorizationHeaderMalformed":
		return text + ": the bucket is in another region; set AWS_REGION"
	case e.passes():
		return fmt.Sprintf("%s, %d times: try again when it has less to do", text, tries)
	}
	return text
}

func (e *answerError) passes() bool {
	return e.status >= 500 || e.status == http.StatusTooManyRequests || e.status == http.StatusRequestTimeout
}

// maxAnswer is the most bytes of an answer.
const maxAnswer = 64 << 20

// call makes one call, and again if it failed for a reason that may pass.
func (b *bucket) call(ctx context.Context, method, key string, q url.Values, body []byte, h http.Header) (data []byte, err error) {
	pause := b.pause
	for n := 1; ; n++ {
		data, err = b.try(ctx, method, key, q, body, h)
		var e *answerError
		if err == nil || ctx.Err() != nil || errors.As(err, &e) && !e.passes() || n == tries {
			return data, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		pause *= 2
	}
}

func (b *bucket) try(ctx context.Context, method, key string, q url.Values, body []byte, h http.Header) (data []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	u := b.endpoint + b.path + escape(key)
	if q != nil {
		u += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("AWS_ENDPOINT_URL is no URL")
	}
	for name, values := range h {
		req.Header[name] = values
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", hash)
	if err := b.signer.SignHTTP(ctx, b.keys, req, hash, "s3", b.region, time.Now()); err != nil {
		return nil, err
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.name, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if data, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return nil, fmt.Errorf("%s: its answer was cut off: %w", b.name, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return data, nil
	}
	var said struct{ Code string }
	_ = xml.Unmarshal(data, &said) // a proxy may say it in another way
	return nil, &answerError{place: b.name, code: said.Code, status: resp.StatusCode}
}
