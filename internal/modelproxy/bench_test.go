package modelproxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// What the proxy adds to a call: the same request to the provider, and through the proxy.
func BenchmarkCall(b *testing.B) {
	server := provider(b, canned("text/event-stream", anthropicStream, 1<<20))
	s := open(b, start(b), Upstream{URL: server.URL, Key: realKey})
	small := `{"model":"m","tools":[{"name":"x"}]}`
	large := `{"model":"m","messages":["` + strings.Repeat(`some text with \"quotes\" and\nlines `, 15_000) + `"],"tools":[{"name":"x"}]}`
	for name, body := range map[string]string{"1KB": small, "500KB": large} {
		for way, url := range map[string]string{"direct": server.URL, "proxy": s.URL()} {
			b.Run(name+"/"+way, func(b *testing.B) {
				for b.Loop() {
					r := request(b, s, "/v1/messages", body)
					r.URL.Host = strings.TrimPrefix(url, "http://")
					resp, err := http.DefaultClient.Do(r)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		}
	}
}

func BenchmarkFields(b *testing.B) {
	body := []byte(`{"model":"m","messages":["` + strings.Repeat(`some text with \"quotes\" and\nlines `, 15_000) + `"],"tools":[{"name":"x"}]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		f := fields{wanted: wantedOfRequests}
		f.write(body)
		if !f.isFilled("tools") {
			b.Fatal("no tools")
		}
	}
}
