import CSystemd
import Glibc

/// The names on a message bus.
package enum BusNames {
    /// In microseconds.
    private static let patience: UInt64 = 3_000_000

    /// The well-known names that have an owner, or that the bus would start a service for, in order. Starts
    /// none.
    ///
    /// Waits for the bus, for some seconds at most.
    package static func known(address: String) throws(BusError) -> [String] {
        let bus = try BusHandle(address: address, takesDescriptors: false)
        unsafe sd_bus_set_method_call_timeout(bus.pointer, patience)
        var owned: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?
        var startable: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?
        let result = unsafe sd_bus_list_names(bus.pointer, &owned, &startable)
        guard result >= 0 else { throw BusError(result) }
        let names = unsafe take(owned) + take(startable)
        return Set(names.filter { !$0.hasPrefix(":") }).sorted()
    }

    /// Frees an array that ends with nil, and all of its texts.
    private static func take(_ texts: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?) -> [String] {
        guard let texts = unsafe texts else { return [] }
        var taken: [String] = []
        var index = 0
        while let text = unsafe texts[index] {
            taken.append(unsafe String(cString: text))
            unsafe free(text)
            index += 1
        }
        unsafe free(texts)
        return taken
    }
}
