// Browsers refuse workers to pages from the file system. There, a hidden frame does the work of one, so that search
// works without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      const load = (source) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          script.src = source;
          script.onload = done;
          script.onerror = failed;
          inside.document.head.append(script);
        });
      inside.postMessage = (data) => this.tell(this, data);
      inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(new URL(source, url))), Promise.resolve());
      this.loaded = load(url);
    }
    postMessage(data) {
      this.loaded.then(() => this.tell(this.inside, data));
    }
    tell(target, data) {
      const event = new MessageEvent("message", { data });
      target.dispatchEvent(event);
      if (target === this && this.onmessage) this.onmessage(event);
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
