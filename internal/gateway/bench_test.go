package gateway_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/mcp"
)

// BenchmarkHop compares a call of a tool made directly, through the least that can stand between
// (it reads a message and writes it on, ids untouched), and through the gateway, by turns in one
// run. Server, forwarder and gateway are processes of their own, and all but the gateway as bare as
// can be. It reports the median of each in µs, and how many times the bare forwarder's the
// gateway's is, which should be at most 1.25. Over stdio the gateway serves its client as evalrun
// gateway --stdio does.
//
//	go test -run '^$' -bench Hop -benchtime 3000x ./gateway
func BenchmarkHop(b *testing.B) {
	for _, transport := range []string{"http", "stdio"} {
		for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			for _, size := range []int{16, 64 << 10} {
				b.Run(fmt.Sprintf("%s/%s/%dB", transport, era, size), func(b *testing.B) {
					var ways []way
					if transport == "http" {
						server := startHTTP(b, "server", era, "")
						ways = []way{
							{name: "direct", call: callHTTP(b, server, era)},
							{name: "forwarder", call: callHTTP(b, startHTTP(b, "forwarder", era, server), era)},
							{name: "gateway", call: callHTTP(b, startHTTP(b, "gateway", era, server), era)},
						}
					} else {
						ways = []way{
							{name: "direct", call: callLines(b, startLines(b, "server", era), era)},
							{name: "forwarder", call: callLines(b, startLines(b, "forwarder", era), era)},
							{name: "gateway", call: callLines(b, startLines(b, "gateway", era), era)},
						}
					}
					measure(b, era, size, ways)
				})
			}
		}
	}
}

// BenchmarkHopWithIntent is the same for calls that may start something, of which each is on the
// disk before it is made.
func BenchmarkHopWithIntent(b *testing.B) {
	for _, size := range []int{16, 64 << 10} {
		b.Run(fmt.Sprintf("http/legacy/%dB", size), func(b *testing.B) {
			server := startHTTP(b, "server", mcp.Legacy, "")
			measure(b, mcp.Legacy, size, []way{
				{name: "forwarder", call: callHTTP(b, startHTTP(b, "forwarder", mcp.Legacy, server), mcp.Legacy)},
				{name: "gateway", call: callHTTP(b, startHTTP(b, "intent", mcp.Legacy, server), mcp.Legacy)},
			})
		})
	}
}

// way is one way to make a call.
type way struct {
	name string
	call func(text string) []byte
	took []time.Duration
}

// measure makes calls by all ways in turns.
func measure(b *testing.B, era mcp.Era, size int, ways []way) {
	c := &rawClient{era: era, capabilities: "{}"}
	padding := strings.Repeat("All work and no play makes Jack a dull boy. ", size/44+1)[:max(size-8, 0)]
	n := 0
	once := func(w *way) {
		n++
		arguments := fmt.Sprintf(`{"n":%d,"text":%q}`, n, padding)
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, n, c.params(`"name":"echo","arguments":`+arguments, ""))
		begin := time.Now()
		answer := w.call(text)
		w.took = append(w.took, time.Since(begin))
		if !bytes.Contains(answer, []byte(arguments)) {
			b.Fatalf("%s: %.300s", w.name, answer)
		}
	}
	for range 200 {
		for i := range ways {
			once(&ways[i])
		}
	}
	for i := range ways {
		ways[i].took = nil
	}
	for b.Loop() {
		for i := range ways {
			once(&ways[i])
		}
	}
	medians := map[string]float64{}
	for _, w := range ways {
		slices.Sort(w.took)
		medians[w.name] = float64(w.took[len(w.took)/2].Nanoseconds()) / 1000
		b.ReportMetric(medians[w.name], w.name+"-µs")
	}
	b.ReportMetric(medians["gateway"]/medians["forwarder"], "gateway/forwarder")
	b.ReportMetric(0, "ns/op") // the sum of all ways tells nothing
}

func post(client *http.Client, url string, era mcp.Era, session, text string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if session != "" {
		req.Header["Mcp-Session-Id"] = []string{session}
	}
	if era == mcp.Modern {
		req.Header["Mcp-Protocol-Version"] = []string{mcp.Version2026_07_28}
		req.Header["Mcp-Method"] = []string{"tools/call"}
		req.Header["Mcp-Name"] = []string{"echo"}
	}
	return client.Do(req)
}

const benchInitialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`

func callHTTP(b *testing.B, url string, era mcp.Era) func(text string) []byte {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	b.Cleanup(client.CloseIdleConnections)
	session := ""
	call := func(text string) []byte {
		resp, err := post(client, url, era, session, text)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
			session = id
		}
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			b.Fatal(err)
		}
		return answer
	}
	if era == mcp.Legacy {
		call(benchInitialize)
		call(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return call
}

// callLines calls over lines, one call at a time.
func callLines(b *testing.B, rw io.ReadWriter, era mcp.Era) func(text string) []byte {
	in := bufio.NewReaderSize(rw, 64<<10)
	call := func(text string) []byte {
		if _, err := io.WriteString(rw, text+"\n"); err != nil {
			b.Fatal(err)
		}
		line, err := in.ReadBytes('\n')
		if err != nil {
			b.Fatal(err)
		}
		return line
	}
	if era == mcp.Legacy {
		call(benchInitialize)
	}
	return call
}
