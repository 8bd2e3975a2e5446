package gateway

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/bermhq/berm/internal/egress/wire"
)

// endpoint is the stack's end of a link; gVisor's package ethernet is around it
// for what frames have at their front.
//
// Checksums of what comes in are not verified: the link is memory, and a guest
// that sends wrong ones harms nobody. So the sandbox need not compute them,
// whichever way its own end is set. What goes out has them, for the other end
// may look.
type endpoint struct {
	link       FrameConn
	dispatcher atomic.Pointer[stack.NetworkDispatcher]
}

var _ stack.LinkEndpoint = (*endpoint)(nil)

// deliver gives a frame to the stack, which keeps no part of it.
func (e *endpoint) deliver(frame []byte) {
	d := e.dispatcher.Load()
	if d == nil {
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame)})
	(*d).DeliverNetworkPacket(0, pkt)
	pkt.DecRef()
}

func (e *endpoint) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	for i, pkt := range pkts.AsSlice() {
		if err := e.link.WriteFrame(pkt.AsSlices()); err != nil {
			return i, &tcpip.ErrClosedForSend{}
		}
	}
	return pkts.Len(), nil
}

func (e *endpoint) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		e.dispatcher.Store(nil)
		return
	}
	e.dispatcher.Store(&d)
}

func (e *endpoint) IsAttached() bool               { return e.dispatcher.Load() != nil }
func (e *endpoint) MTU() uint32                    { return wire.MaxFrame }
func (e *endpoint) LinkAddress() tcpip.LinkAddress { return wire.GatewayMAC }
func (e *endpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}
func (e *endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

func (*endpoint) SetMTU(uint32)                        {}
func (*endpoint) SetLinkAddress(tcpip.LinkAddress)     {}
func (*endpoint) MaxHeaderLength() uint16              { return 0 }
func (*endpoint) Wait()                                {}
func (*endpoint) AddHeader(*stack.PacketBuffer)        {}
func (*endpoint) ParseHeader(*stack.PacketBuffer) bool { return true }
func (*endpoint) Close()                               {}
func (*endpoint) SetOnCloseAction(func())              {}
