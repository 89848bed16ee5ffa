import Glibc
import NightbellProfiles

/// The profile that this process fuzzes: `NIGHTBELL_FUZZ_PROFILE`.
private let name: ProfileName = {
    let value = unsafe getenv("NIGHTBELL_FUZZ_PROFILE").map { unsafe String(cString: $0) } ?? ""
    guard let name = ProfileName(rawValue: value) else { fatalError("no profile is called '\(value)'") }
    return name
}()

/// libFuzzer calls this for each input.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = unsafe Array(UnsafeBufferPointer(start: start, count: count))
    do {
        try FuzzedInput(bytes, for: name)?.play()
    } catch {
        fatalError("\(error)")
    }
    return 0
}
