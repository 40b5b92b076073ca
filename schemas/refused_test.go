package schemas

import (
	"fmt"
	"testing"
)

// What is reported is bounded, however many hosts an agent has tried, and the number is right.
func TestRefusedConnectionsAreBounded(t *testing.T) {
	var sum *RefusedConnections
	if got := sum.String(); got != "" {
		t.Errorf("of none: %q", got)
	}
	for i := range 30 {
		for range 2 {
			sum = sum.Plus(&RefusedConnections{Total: 1, Hosts: []RefusedHost{{Host: fmt.Sprintf("h%d.test:443", i), Reason: "no", Connections: 1}}})
		}
	}
	sum = sum.Plus(&RefusedConnections{Total: 3, Hosts: []RefusedHost{{Host: "h2.test:443", Reason: "no", Connections: 3}}}).Plus(nil)
	if sum.Total != 63 || len(sum.Hosts) != MostRefusedHosts || sum.Hosts[0].Connections != 5 {
		t.Errorf("%+v", sum)
	}
	if got, want := sum.String(), "63 connections were refused: h2.test:443 (5 times), h0.test:443 (2 times), h1.test:443 (2 times), h3.test:443 (2 times), h4.test:443 (2 times) and 50 more"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
