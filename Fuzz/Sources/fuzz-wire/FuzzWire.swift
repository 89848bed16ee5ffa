/// libFuzzer calls this for each input.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = unsafe Array(UnsafeBufferPointer(start: start, count: count))
    do {
        try FuzzedPacket(bytes)?.play()
        try FuzzedProfile(bytes)?.play()
    } catch {
        fatalError("\(error)")
    }
    return 0
}
