// The cost of goroutines: the shapes of the example api_bench.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const waiting = 10000
const frames = 10000

func metric(name string, start time.Time, rounds int) {
	elapsed := float64(time.Since(start).Nanoseconds())
	fmt.Printf("METRIC %s %.1f ns\n", name, elapsed/float64(rounds))
}

func join(work func()) {
	end := make(chan struct{})
	go func() {
		work()
		close(end)
	}()
	<-end
}

// Makes so many goroutines that all wait at once.
func create(name string, count int, work func()) {
	var reached atomic.Int64
	var ended sync.WaitGroup
	gate := make(chan struct{})
	ended.Add(count)
	start := time.Now()
	for i := 0; i < count; i++ {
		go func() {
			work()
			reached.Add(1)
			<-gate
			ended.Done()
		}()
	}
	for reached.Load() < int64(count) {
		runtime.Gosched()
	}
	metric(name, start, count)
	close(gate)
	ended.Wait()
}

func link(left int, end chan struct{}) {
	if left == 0 {
		close(end)
		return
	}
	go link(left-1, end)
}

func yields(rounds int) {
	var ended sync.WaitGroup
	ended.Add(2)
	for i := 0; i < 2; i++ {
		go func() {
			for n := 0; n < rounds; n++ {
				runtime.Gosched()
			}
			ended.Done()
		}()
	}
	ended.Wait()
}

func resume(rounds int) {
	var slot atomic.Pointer[chan struct{}]
	var ended sync.WaitGroup
	ended.Add(2)
	go func() {
		for i := 0; i < rounds; i++ {
			gate := make(chan struct{}, 1)
			slot.Store(&gate)
			<-gate
		}
		ended.Done()
	}()
	go func() {
		for i := 0; i < rounds; i++ {
			gate := slot.Swap(nil)
			for gate == nil {
				runtime.Gosched()
				gate = slot.Swap(nil)
			}
			*gate <- struct{}{}
		}
		ended.Done()
	}()
	ended.Wait()
}

func handOver(rounds int) {
	var lock sync.Mutex
	var ended sync.WaitGroup
	changed := sync.NewCond(&lock)
	turn := 0
	ended.Add(2)
	player := func(me int) {
		for i := 0; i < rounds; i++ {
			lock.Lock()
			for turn != me {
				changed.Wait()
			}
			turn = 1 - me
			changed.Signal()
			lock.Unlock()
		}
		ended.Done()
	}
	go player(0)
	go player(1)
	ended.Wait()
}

//go:noinline
func waitAt(depth int) int {
	if depth == 0 {
		join(func() {})
		return 0
	}
	return waitAt(depth-1) + 1
}

//go:noinline
func deep(left int) int {
	var room [16]int
	room[left%16] = left
	if left == 0 {
		return room[0]
	}
	return deep(left-1) + room[1]
}

func main() {
	rounds := 200000
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	start := time.Now()
	for i := 0; i < rounds; i++ {
		join(func() {})
	}
	metric("create+join", start, rounds)
	create("create", waiting, func() {})
	end := make(chan struct{})
	start = time.Now()
	link(rounds, end)
	<-end
	metric("reuse", start, rounds)
	start = time.Now()
	yields(rounds)
	metric("yield", start, 2*rounds)
	start = time.Now()
	resume(rounds)
	metric("resume", start, rounds)
	for _, depth := range []int{1, 4, 16, 64} {
		start = time.Now()
		for i := 0; i < rounds/10+1; i++ {
			waitAt(depth)
		}
		metric(fmt.Sprintf("wait-%d", depth), start, rounds/10+1)
	}
	create("deep-create", 50, func() { deep(frames) })
	start = time.Now()
	for i := 0; i < 100; i++ {
		join(func() { deep(frames) })
	}
	metric("deep-reuse", start, 100)
	start = time.Now()
	handOver(rounds)
	metric("hand-over", start, 2*rounds)
}
