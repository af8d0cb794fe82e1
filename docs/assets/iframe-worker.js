// Browsers refuse workers to pages from the file system. There, a hidden frame does the work of one, so that search
// works without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      const ready = new Promise((done) => (this.frame.onload = done));
      document.body.append(this.frame);
      this.loaded = ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.postMessage = (data) => this.tell(this, data);
        inside.importScripts = (...sources) =>
          sources.reduce((before, source) => before.then(() => this.load(new URL(source, url))), Promise.resolve());
        return this.load(url);
      });
    }
    load(source) {
      const script = this.frame.contentDocument.createElement("script");
      script.src = source;
      const loaded = new Promise((done, failed) => Object.assign(script, { onload: done, onerror: failed }));
      this.frame.contentDocument.head.append(script);
      return loaded;
    }
    postMessage(data) {
      this.loaded.then(() => this.tell(this.frame.contentWindow, data));
    }
    tell(target, data) {
      const event = new MessageEvent("message", { data });
      target.dispatchEvent(event);
      if (target === this && this.onmessage) this.onmessage(event);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
