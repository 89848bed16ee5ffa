import Glibc

/// The report as one HTML file that needs no other.
struct Page {
    private let results: any Reportable

    init(_ results: any Reportable) {
        self.results = results
    }

    /// Returns the path of the file.
    func write(into directory: String) throws -> String {
        ""
    }
}
